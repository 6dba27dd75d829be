// What makes one decoder differ from another: sizes, variants, switches. Families read them from
// their checkpoints' config.json; everything after that sees only traits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/plan.h"
#include "kernels/api/ops.h"

namespace nereid::models {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn };

struct RopeTraits {
  double theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  double original_positions = 0;                     // llama3, yarn: context length before scaling
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  std::optional<double> attention_factor;            // yarn; absent = 0.1 ln(factor) + 1
};

struct Traits {
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t intermediate_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t max_positions = 0;
  int32_t sliding_window = 0;    // 0 = none
  std::vector<bool> has_window;  // by layer, where only some have the window
  float norm_eps = 0;
  kernels::Activation activation = kernels::Activation::kSilu;
  std::vector<RopeTraits> ropes;  // tables of angles; none: no rotary embedding
  bool qkv_bias = false;
  bool attention_out_bias = false;
  bool mlp_bias = false;
  bool tied_embedding = false;
  float attention_scale = 0;  // of the scores; 0: 1 / sqrt(head_dim)
  // Of a mixture of experts.
  int32_t num_experts = 0;  // in each layer; 0: none
  int32_t experts_per_token = 0;
  int32_t expert_intermediate_size = 0;
  bool renormalise_experts = false;  // the weights of those picked add up to one
  float logits_cap = 0;              // soft cap of the logits; 0: none
};

// Conditions of weights.
constexpr bool tied(const Traits& t) { return t.tied_embedding; }
constexpr bool untied(const Traits& t) { return !t.tied_embedding; }

// Inverse frequencies and attention factor (formulas: Su et al. 2021 RoPE; Peng et al. 2023 YaRN;
// Meta's Llama 3.1 reference), rounded to f32.
io::RopeTable rope_table(const RopeTraits& rope, int32_t head_dim);

// The traits as "name: value" lines, for people.
std::string print(const Traits& traits);

}  // namespace nereid::models
