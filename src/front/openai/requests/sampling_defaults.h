// Sampling defaults of a checkpoint's generation_config.json.
#pragma once

#include <filesystem>

#include "base/status.h"
#include "front/openai/requests/requests.h"

namespace nereid::front {

struct GenerationDefaults {
  SamplingDefaults sampling;
  int64_t max_tokens = 0;  // 0: not set
};

// No file: no defaults. `do_sample` is ignored: requests of an API are sampled. Errors name file,
// field, value and what is allowed.
StatusOr<GenerationDefaults> read_generation_defaults(const std::filesystem::path& dir);

// Sets the options that the request did not set.
void use_defaults(const SamplingDefaults& defaults, SamplingOptions& sampling);

}  // namespace nereid::front
