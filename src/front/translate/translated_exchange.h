// Other chat APIs in terms of OpenAI's: a request becomes a body of /v1/chat/completions, and the
// answer is made of that route's answer, whole or chunk by chunk.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json_members.h"
#include "front/http/message.h"
#include "front/translate/context_rules.h"

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
  // Something of an answer that is sent whole has come; once for each piece.
  virtual void take_piece() {}
};

// What is wrong with a request; the field first.
struct TranslationFault {
  std::string message;
};

// The handler that a request becomes one for.
enum class Translates {
  kChat,
  kCompletion,
  kEmbedding,  // its answers are of the API already, only errors are translated
  kNothing,    // the body is the answer, where there is such a model
};

// A request's body for that handler and how it is answered.
struct Translated {
  std::string body;
  std::unique_ptr<Translation> translation;
  Headers headers = {};  // that an answer has beside those of the chat's
  Translates to = Translates::kChat;
  std::string model = {};                 // that is asked for
  std::vector<std::string> unknown = {};  // members of the request that are not known
  ContextRules rules = {};
};
using Translator = std::variant<Translated, TranslationFault> (*)(const json::object& request);

// An exchange with the chat body as its request, whose answer goes to `exchange` in translation.
ExchangePtr translated_exchange(ExchangePtr exchange, Translated translated);

// Members that are none of these, with `prefix` in front of their names.
std::vector<std::string> unknown_members(const json::object& object,
                                         std::span<const std::string_view> known,
                                         std::string_view prefix = "");

// Fields by the names of a chat and of the request.
using Renamed = std::pair<std::string_view, std::string_view>;
// Gives the field at fault, and the message that begins with it, the request's name.
void rename_field(ChatError& error, std::span<const Renamed> names);

// "event: <type>\ndata: <json>\n\n".
std::string named_event(std::string_view type, const json::object& data);

// The first choice of a chat answer or chunk; null: there is none (as in a chunk of usage).
const json::object* first_choice(const json::object& chat);

}  // namespace nereid::front
