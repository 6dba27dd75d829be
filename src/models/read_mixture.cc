#include "models/read_mixture.h"

#include <algorithm>

#include "models/read_fields.h"

namespace nereid::models {

namespace {

// Newer files list the kind of each layer's MLP.
void read_mlp_kinds(Config& c, Traits& t) {
  const std::vector<std::string> kinds = c.strings("mlp_layer_types");
  if (kinds.empty()) return;
  if (kinds.size() != t.has_experts.size())
    return c.fail("mlp_layer_types",
                  fmt::format("{} kinds for {} layers", kinds.size(), t.num_layers));
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] != "dense" && kinds[i] != "sparse")
      return c.fail("mlp_layer_types",
                    fmt::format("'{}' is not one of dense, sparse", kinds[i].substr(0, 40)));
    t.has_experts[i] = kinds[i] == "sparse";
  }
}

}  // namespace

void read_groups(Config& c, Traits& t, int64_t groups, int64_t kept, int32_t group_best) {
  t.expert_groups = c.integer("n_group", 1, t.num_experts, groups);
  t.expert_groups_kept = c.integer("topk_group", 1, t.expert_groups, kept);
  t.expert_group_best = group_best;
  const int32_t size = t.num_experts / t.expert_groups;
  if (t.num_experts % t.expert_groups != 0 || size < group_best)
    c.fail("n_group", fmt::format("{} groups of {} experts; wanted are equal ones of at least {}",
                                  t.expert_groups, t.num_experts, group_best));
  if (t.experts_per_token > size * t.expert_groups_kept)
    c.fail("topk_group", fmt::format("{} groups of {} experts are not enough for "
                                     "num_experts_per_tok {}",
                                     t.expert_groups_kept, size, t.experts_per_token));
}

void read_mixture(Config& c, Traits& t, const MixtureDefaults& defaults) {
  read_experts(c, t, defaults.experts_name, defaults.experts, defaults.picked);
  t.expert_intermediate_size =
      c.integer("moe_intermediate_size", 1, kMaxIntermediate, defaults.intermediate);
  t.shared_intermediate_size =
      c.integer(defaults.shared_name, 0, kMaxIntermediate / t.expert_intermediate_size,
                c.mentions(defaults.shared_name) ? 0 : defaults.shared) *
      t.expert_intermediate_size;
  t.expert_scale = static_cast<float>(c.number("routed_scaling_factor", 0, 1e4, defaults.scale));
  const int32_t dense = c.integer("first_k_dense_replace", 0, t.num_layers,
                                  std::min<int64_t>(defaults.dense_layers, t.num_layers));
  for (int32_t i = 0; i < t.num_layers; ++i) t.has_experts.push_back(i >= dense);
  read_mlp_kinds(c, t);
  c.require("moe_layer_freq", 1);
  t.num_mtp_layers = c.integer("num_nextn_predict_layers", 0, kMaxLayers, 0);
}

void read_corrected_router(Config& c, Traits& t, int64_t groups, int64_t kept) {
  t.expert_scoring = kernels::Scoring::kSigmoid;
  t.renormalise_experts = c.boolean("norm_topk_prob", true);
  c.require("scoring_func", "sigmoid");
  c.require("topk_method", "noaux_tc");
  read_groups(c, t, groups, kept, 2);
}

}  // namespace nereid::models
