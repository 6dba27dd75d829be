// From the pictures that a request names to patches. Internal to front/openai.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "front/openai/error.h"
#include "front/openai/handlers.h"
#include "front/openai/pictures/picture_prompt.h"
#include "front/openai/requests/chat_prompt.h"
#include "front/openai/requests/requests.h"

namespace nereid::front {

// A 400 for pictures to a model that takes none. `param`: the field with the pictures.
std::optional<ApiError> check_takes_pictures(const LanguageModel& model,
                                             const std::vector<PictureSource>& sources);

// Fetches, decodes and preprocesses. A 400 names the part and the fault; a 503: the budget is full.
// Throws TakesLonger on an event loop, and on a worker for large pictures; WaitsForOthers for URLs
// in any lane but kFetch.
std::variant<std::vector<PicturePtr>, ApiError> read_pictures(
    const OpenAiContext& context, const LanguageModel& model,
    const std::vector<PictureSource>& sources, const PromptWork& work);

// Repeats the tokens of the pictures of `pictures` in `ids`, sets their spans, and takes room in
// the budget for their values. A 400 that names `param`: there are not as many tokens as pictures;
// a 503: the budget is full.
std::optional<ApiError> place_in_prompt(const OpenAiContext& context, const LanguageModel& model,
                                        std::string_view param, std::vector<int32_t>& ids,
                                        PromptPictures& pictures);

}  // namespace nereid::front
