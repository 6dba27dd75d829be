// From a conversation to a prompt. Internal to front/openai.
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

// The lane in which a prompt is made, and whether it is still wanted (empty: always).
struct PromptWork {
  Lane lane = Lane::kLong;
  std::function<bool()> is_unwanted = {};
};

// `context`: the template's variables. With `continues_last` the text ends where the last
// message's does, so that the model continues it. `own_template`: the request's, where the
// server accepts one. A 400 names the template's line or the fault. Throws TakesLonger unless
// the lane is the last.
std::variant<std::string, ApiError> chat_prompt(const LanguageModel& model,
                                                const json::object& context, bool continues_last,
                                                const std::optional<std::string>& own_template,
                                                const PromptWork& work);

// Starts of a shortened conversation: every user message but the first.
std::vector<size_t> later_starts(const json::array& messages);
// The messages from `start` on, preceded by the system messages before it.
json::array messages_from(const json::array& messages, size_t start);

}  // namespace nereid::front
