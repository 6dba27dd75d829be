// Fields of mixtures of experts as DeepSeek names them, and with it many families since.
#pragma once

#include <cstdint>
#include <string_view>

#include "models/config.h"
#include "models/traits.h"

namespace nereid::models {

// What they mean when a file leaves them out, and what it calls them.
struct MixtureDefaults {
  int64_t dense_layers, experts, picked, intermediate, shared;
  double scale;
  std::string_view experts_name = "n_routed_experts", shared_name = "n_shared_experts";
};

// Experts with some for all tokens, behind a few dense layers; layers that predict further tokens.
void read_mixture(Config& config, Traits& traits, const MixtureDefaults& defaults);

// Experts in `groups` groups, of which the best `kept` take part: those with the largest sum of
// their `group_best` best.
void read_groups(Config& config, Traits& traits, int64_t groups, int64_t kept, int32_t group_best);

// A router that scores by sigmoid, with a correction that only picks; groups count by their best
// two experts.
void read_corrected_router(Config& config, Traits& traits, int64_t groups, int64_t kept);

}  // namespace nereid::models
