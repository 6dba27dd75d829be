// Other chat APIs in terms of OpenAI's: a request becomes a body of /v1/chat/completions, and the
// answer is made of that route's answer, whole or chunk by chunk.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "base/json.h"
#include "front/http/message.h"

namespace nereid::front {

// What a chat handler says of a failure.
struct ChatError {
  int status = 500;
  std::string message;
  std::string param, code;  // the chat's field at fault, a machine-readable name; may be empty
};

// How the answer to one request is made. On the exchange's strand, or where it delivers.
class Translation {
 public:
  virtual ~Translation() = default;

  virtual std::string_view stream_type() const = 0;  // content type
  // The body, of a chat.completion.
  virtual std::string answer(const json::object& chat) = 0;
  // What a chat.completion.chunk adds to the stream.
  virtual std::string chunk(const json::object& chunk) = 0;
  // The end of a stream that has not failed.
  virtual std::string end() = 0;
  // A failure as a body, or as part of a stream.
  virtual std::string error(const ChatError& error, bool in_stream) = 0;
};

// What is wrong with a request; the field first.
struct TranslationFault {
  std::string message;
};

// A request's chat body and how it is answered.
struct Translated {
  std::string body;
  std::unique_ptr<Translation> translation;
  Headers headers = {};  // that an answer has beside those of the chat's
};
using Translator = std::variant<Translated, TranslationFault> (*)(const json::object& request);

// An exchange with the chat body as its request, whose answer goes to `exchange` in translation.
ExchangePtr translated_exchange(ExchangePtr exchange, Translated translated);

// "event: <type>\ndata: <json>\n\n".
std::string named_event(std::string_view type, const json::object& data);

// The first choice of a chat answer or chunk; null: there is none (as in a chunk of usage).
const json::object* first_choice(const json::object& chat);
// A member that is a string, "" without one.
std::string text_member(const json::object& object, std::string_view key);

}  // namespace nereid::front
