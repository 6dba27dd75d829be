// The text that a conversation becomes. Internal to front/openai.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "front/http/workers.h"
#include "front/openai/error.h"
#include "front/openai/language_model.h"

namespace nereid::front {

// Where a prompt is made, and whether it still is wanted (empty: always).
struct PromptWork {
  Lane lane = Lane::kLong;
  std::function<bool()> is_unwanted = {};
};

// `context`: what the template gets. With `continues_last` the text ends where the last message's
// does, so that the model goes on with it. `own_template`: of the request, where the server takes
// such. A 400 names the template's line or what is wrong. Throws TakesLonger where that lane has
// one behind it.
std::variant<std::string, ApiError> chat_prompt(const LanguageModel& model,
                                                const json::object& context, bool continues_last,
                                                const std::optional<std::string>& own_template,
                                                const PromptWork& work);

// Where a conversation may begin without its oldest messages: at each message of a user but the
// first.
std::vector<size_t> later_starts(const json::array& messages);
// The messages from there on, and those of the system before.
json::array messages_from(const json::array& messages, size_t start);

}  // namespace nereid::front
