// How a checkpoint's generation_config.json wants texts to be drawn where requests do not say.
#pragma once

#include <filesystem>

#include "base/status.h"
#include "front/openai/requests.h"

namespace nereid::front {

struct GenerationDefaults {
  SaidSampling sampling;
  int64_t max_tokens = 0;  // 0: it does not say
};

// No file: it says nothing. `do_sample` is not looked at: an API's requests are drawn. Errors name
// file, field, value and what is allowed.
StatusOr<GenerationDefaults> read_generation_defaults(const std::filesystem::path& dir);

// What the request did not say becomes what `defaults` do.
void use_defaults(const SaidSampling& defaults, SamplingOptions& sampling);

}  // namespace nereid::front
