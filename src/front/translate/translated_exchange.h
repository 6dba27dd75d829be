// Other chat APIs in terms of OpenAI's: a request becomes a body of /v1/chat/completions, and that
// route's answer is translated, whole or chunk by chunk.
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

// A chat handler's error.
struct ChatError {
  int status = 500;
  std::string message;
  std::string param, code;  // the chat's field at fault, a machine-readable name; may be empty
};

// Translates the answer to one request. On the exchange's strand, or inside deliver().
class Translation {
 public:
  virtual ~Translation() = default;

  virtual std::string_view stream_type() const = 0;  // content type
  // The body, from a chat.completion.
  virtual std::string answer(const json::object& chat) = 0;
  // The stream's text for a chat.completion.chunk.
  virtual std::string chunk(const json::object& chunk) = 0;
  // The end of a stream without an error.
  virtual std::string end() = 0;
  // An error as a body, or as part of a stream.
  virtual std::string error(const ChatError& error, bool in_stream) = 0;
  // Called for each piece of an answer that is sent whole.
  virtual void take_piece() {}
};

// A fault of a request, with the field first.
struct TranslationFault {
  std::string message;
};

// The handler that a request is translated for.
enum class Translates {
  kChat,
  kCompletion,
  kEmbedding,  // its answers have the API's form already, only errors are translated
  kNothing,    // the body is the answer, if the model exists
};

// A request's body for that handler, and the translation of its answer.
struct Translated {
  std::string body;
  std::unique_ptr<Translation> translation;
  Headers headers = {};  // headers of the answer beside the chat's
  Translates to = Translates::kChat;
  std::string model = {};                 // model named in the request
  std::vector<std::string> unknown = {};  // unknown members of the request
  ContextRules rules = {};
};
using Translator = std::variant<Translated, TranslationFault> (*)(const json::object& request);

// An exchange with the chat body as its request, whose answer is translated for `exchange`.
ExchangePtr translated_exchange(ExchangePtr exchange, Translated translated);

// Members that are none of these, with `prefix` before their names.
std::vector<std::string> unknown_members(const json::object& object,
                                         std::span<const std::string_view> known,
                                         std::string_view prefix = "");

// Field names: (chat, request).
using Renamed = std::pair<std::string_view, std::string_view>;
// Gives the field at fault, and a message that begins with it, the request's name.
void rename_field(ChatError& error, std::span<const Renamed> names);

// "event: <type>\ndata: <json>\n\n".
std::string named_event(std::string_view type, const json::object& data);

// The first choice of a chat answer or chunk; null: none (as in a chunk of usage).
const json::object* first_choice(const json::object& chat);

}  // namespace nereid::front
