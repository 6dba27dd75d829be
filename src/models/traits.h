// What makes one decoder differ from another: sizes, variants, switches. Families read them from
// their checkpoints' config.json; everything after that sees only traits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/plan.h"
#include "kernels/api/ops.h"

namespace nereid::models {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kLongRope };

struct RopeTraits {
  bool operator==(const RopeTraits&) const = default;

  double theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  double original_positions = 0;                     // llama3, yarn: context length before scaling
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;  // yarn: the ramp begins and ends at whole dimensions
  // yarn: absent = 0.1 ln(factor) + 1; longrope: absent = sqrt(1 + ln(factor) / ln(original))
  std::optional<double> attention_factor;
  double score_factor = 1;       // yarn: of attention's scores, for the family to read
  std::vector<double> divisors;  // longrope: of each frequency
  // longrope: the same where the context is longer than the original one
  std::optional<double> long_attention_factor;
  std::vector<double> long_divisors;
  int32_t dim = 0;  // the first columns of a head, those that turn; 0: all
};

struct Traits {
  bool operator==(const Traits&) const = default;

  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t embed_size = 0;  // columns of the embedding and of what the head reads
  int32_t intermediate_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t max_positions = 0;
  int32_t sliding_window = 0;    // 0 = none
  bool chunked = false;          // the window is the query's own chunk of so many positions
  std::vector<bool> has_window;  // by layer, where only some have the window
  std::vector<bool> has_rope;    // by layer, where only some have the rotary embedding
  float norm_eps = 0;
  bool layer_norm = false;  // norms take off the mean
  bool norm_bias = false;
  bool unit_norms = false;       // norms' weights are ones, which checkpoints leave out
  bool unit_head_norms = false;  // those of queries and keys are
  bool embed_norm = false;       // of the embeddings
  bool norms_behind = false;     // of the residual, behind what is added to it; else in front
  float norm_weight_offset = 0;
  bool normed_residual = false;  // what attention and MLP read is what they are added to
  bool parallel = false;         // attention and MLP read the same residual
  bool own_norms = false;        // though parallel, each has its norm
  kernels::Activation activation = kernels::Activation::kSilu;
  bool xielu = false;  // that of the MLP, in place of `activation`, with two numbers of each layer
  float glu_limit = 0, glu_up_offset = 0;  // see kernels::Glu
  std::vector<RopeTraits> ropes;           // tables of angles; none: no rotary embedding
  bool rope_interleaved = false;           // turns neighbouring columns, not halves
  float alibi = 0;                         // exponent of the smallest slope; 0: no ALiBi
  float alibi_scale = 1;                   // of the slopes
  bool qk_norm = false;
  bool norms_behind_rope = false;  // norms of queries and keys: behind their rotation
  bool head_norms = false;         // norms of queries and keys with weights of each head
  bool unit_head = false;          // the head's rows are divided by their lengths
  bool gated = true;               // the MLP
  bool qkv_bias = false;
  bool attention_out_bias = false;
  bool mlp_bias = false;
  bool tied_embedding = false;
  bool scores = false;  // texts, with a head of its own (score_head.h)
  bool head_bias = false;
  float attention_scale = 0;    // of the scores; 0: 1 / sqrt(head_dim)
  bool scale_by_layer = false;  // which each layer divides by its number, from 1 on
  float attention_cap = 0;      // soft cap of the scores; 0: none
  // Of queries, in layers without rotation where only some have it: see kernels::ScaleByPosition.
  float query_growth = 0;  // 0: none
  int32_t query_period = 1, query_offset = 0;
  float qkv_limit = 0;  // of queries, keys and values; 0: none
  float embed_scale = 1;
  float residual_scale = 1;  // of what is added to the residual
  // Of latent attention, where head_dim is that of queries and the one key head is `latent` columns
  // and those that turn.
  int32_t latent = 0;        // compressed keys and values; 0: attention is not latent
  int32_t query_latent = 0;  // compressed queries; 0: they are not
  int32_t turning = 0;       // columns of a head that turn: its last in the checkpoint
  int32_t value_dim = 0;     // of a head
  float latent_norm_eps = 0;
  // Of a mixture of experts.
  int32_t num_experts = 0;        // in each layer that has some; 0: none
  std::vector<bool> has_experts;  // by layer, where only some have them; the others' MLP is dense
  int32_t experts_per_token = 0;
  int32_t expert_intermediate_size = 0;
  int32_t shared_intermediate_size = 0;  // of the expert for all tokens; 0: none
  kernels::Scoring expert_scoring = kernels::Scoring::kSoftmax;
  bool experts_read_weighted = false;  // each its input times its weight, which is not its output's
  float expert_reach = 0;              // of the sparse mixer
  bool renormalise_experts = false;    // the weights of those picked add up to one
  int32_t expert_groups = 1, expert_groups_kept = 1, expert_group_best = 1;  // kernels::Route
  float expert_scale = 1;
  // Layers behind the last one that predict further tokens (mtp.h): no part of the model's graph.
  int32_t num_extra_layers = 0;
  float logits_scale = 1;
  float logits_cap = 0;  // soft cap of the logits; 0: none
};

// Conditions of weights.
constexpr bool tied(const Traits& t) { return t.tied_embedding; }
constexpr bool untied(const Traits& t) { return !t.tied_embedding; }
constexpr bool mlp_norm(const Traits& t) { return !t.parallel || t.own_norms; }
constexpr bool own_norms(const Traits& t) { return t.own_norms; }
constexpr bool no_own_norms(const Traits& t) { return !t.own_norms; }
constexpr bool in_turn(const Traits& t) { return !t.parallel; }
constexpr bool embed_norm(const Traits& t) { return t.embed_norm; }
constexpr bool head_bias(const Traits& t) { return t.head_bias; }
constexpr bool norms_in_front(const Traits& t) { return !t.norms_behind; }
constexpr bool norms_behind(const Traits& t) { return t.norms_behind; }
constexpr bool own_embed_size(const Traits& t) { return t.embed_size != t.hidden_size; }
constexpr bool norm_bias(const Traits& t) { return t.norm_bias; }
constexpr bool unit_head_norms(const Traits& t) { return t.unit_head_norms; }
constexpr bool qk_norm(const Traits& t) { return t.qk_norm; }
constexpr bool norms_behind_rope(const Traits& t) { return t.norms_behind_rope; }
constexpr bool head_norms(const Traits& t) { return t.head_norms; }
constexpr bool unit_head(const Traits& t) { return t.unit_head; }
constexpr bool plain_head(const Traits& t) { return !t.unit_head; }
constexpr bool qkv_bias(const Traits& t) { return t.qkv_bias; }
constexpr bool out_bias(const Traits& t) { return t.attention_out_bias; }
constexpr bool xielu(const Traits& t) { return t.xielu; }
constexpr bool gated(const Traits& t) { return t.gated; }
constexpr bool mlp_bias(const Traits& t) { return t.mlp_bias; }
constexpr bool has_query_latent(const Traits& t) { return t.query_latent > 0; }
constexpr bool no_query_latent(const Traits& t) { return t.query_latent == 0; }
// Of a layer, see layer_traits().
constexpr bool is_mixture(const Traits& t) { return t.num_experts > 0; }
constexpr bool is_dense(const Traits& t) { return t.num_experts == 0; }
constexpr bool has_shared_expert(const Traits& t) {
  return is_mixture(t) && t.shared_intermediate_size > 0;
}

// Those of one layer: without experts where it has none, without norms of ones for queries and keys
// that are not rotated.
Traits layer_traits(const Traits& traits, int32_t layer);

// Whether a weight is ones, which no checkpoint has.
bool has_ones(const Traits& traits, std::string_view weight);

// Inverse frequencies and attention factor (formulas: Su et al. 2021 RoPE; Peng et al. 2023 YaRN;
// Meta's Llama 3.1 reference; Ding et al. 2024 LongRoPE), rounded to f32. Longrope has divisors for
// contexts up to the original one and for longer ones: `context` is the longest sequence.
io::RopeTable rope_table(const RopeTraits& rope, int32_t head_dim, int32_t context);

// All of them.
std::vector<io::RopeTable> rope_tables(const Traits& traits, int32_t context);

// The traits as "name: value" lines, for people.
std::string print(const Traits& traits);

}  // namespace nereid::models
