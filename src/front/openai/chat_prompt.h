// The text that a conversation becomes. Internal to front/openai.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "base/json.h"
#include "front/openai/error.h"
#include "front/openai/language_model.h"

namespace nereid::front {

// `context`: what the template gets. With `continues_last` the text ends where the last message's
// does, so that the model goes on with it. `own_template`: of the request, where the server takes
// such. A 400 names the template's line or what is wrong.
std::variant<std::string, ApiError> chat_prompt(const LanguageModel& model,
                                                const json::object& context, bool continues_last,
                                                const std::optional<std::string>& own_template);

}  // namespace nereid::front
