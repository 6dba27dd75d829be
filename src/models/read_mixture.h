// Fields of mixtures of experts with DeepSeek's names, used by many later families.
#pragma once

#include <cstdint>
#include <string_view>

#include "models/config.h"
#include "models/traits.h"

namespace nereid::models {

// Values of absent fields, and field names.
struct MixtureDefaults {
  int64_t dense_layers, experts, picked, intermediate, shared;
  double scale;
  std::string_view experts_name = "n_routed_experts", shared_name = "n_shared_experts";
};

// Reads experts, shared experts, leading dense layers, MTP layers.
void read_mixture(Config& config, Traits& traits, const MixtureDefaults& defaults);

// Group-limited routing: of `groups` groups the `kept` best take part, ranked by the sum of their
// `group_best` best experts.
void read_groups(Config& config, Traits& traits, int64_t groups, int64_t kept, int32_t group_best);

// Sigmoid router with a selection-only correction; groups are ranked by their best two experts.
void read_corrected_router(Config& config, Traits& traits, int64_t groups, int64_t kept);

}  // namespace nereid::models
