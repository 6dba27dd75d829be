// Traits: sizes, variants and switches of a decoder. Families read them from config.json; all later
// code uses traits only.
#pragma once

#include <algorithm>
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

// Frequencies of patches in the plane: first those that turn by the row, then by the column.
// kRepeated: those of half a head, for both; kAlternating: those of a head, in turn.
enum class Plane : uint8_t { kNone, kRepeated, kAlternating };

struct RopeTraits {
  bool operator==(const RopeTraits&) const = default;

  double theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  double original_positions = 0;                     // llama3, yarn: context length before scaling
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn: the ramp's ends are whole dimensions
  // yarn: absent = 0.1 ln(factor) + 1; longrope: absent = sqrt(1 + ln(factor) / ln(original))
  std::optional<double> attention_factor;
  double score_factor = 1;       // yarn: factor of attention scores, applied by the family
  std::vector<double> divisors;  // longrope: per frequency
  // longrope: for contexts longer than the original one
  std::optional<double> long_attention_factor;
  std::vector<double> long_divisors;
  int32_t dim = 0;  // rotary dims: leading columns of a head; 0: all
  // Number of frequencies by component of the position (M-RoPE), in order; empty: no components.
  std::vector<int32_t> sections;
  bool in_turn = false;  // the components take frequencies in turn; the first has the rest
  Plane plane = Plane::kNone;
};

struct Traits {
  bool operator==(const Traits&) const = default;

  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t embed_size = 0;  // width of the embedding and of the head's input
  int32_t intermediate_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t max_positions = 0;
  int32_t sliding_window = 0;    // 0 = none
  bool chunked = false;          // the window is the query's chunk of that many positions
  std::vector<bool> has_window;  // by layer; empty: all
  std::vector<bool> has_rope;    // by layer; empty: all
  float norm_eps = 0;
  bool layer_norm = false;  // LayerNorm: norms subtract the mean
  bool norm_bias = false;
  bool unit_norms = false;       // norm weights are 1 and absent in checkpoints
  bool unit_head_norms = false;  // QK norm weights are 1
  bool embed_norm = false;       // norm of the embeddings
  bool norms_behind = false;     // post-norm: norms of the residual behind the sum; else pre-norm
  float norm_weight_offset = 0;
  bool normed_residual = false;  // attention and MLP are added to their normed input
  bool parallel = false;         // attention and MLP read the same residual
  bool own_norms = false;        // parallel layers with separate norms
  kernels::Activation activation = kernels::Activation::kSilu;
  bool xielu = false;  // MLP activation xIELU with two parameters per layer, replaces `activation`
  float glu_limit = 0, glu_up_offset = 0;  // see kernels::Glu
  std::vector<RopeTraits> ropes;           // rope tables; empty: no rotary embedding
  bool rope_interleaved = false;           // rotary pairs are adjacent columns, not halves
  float alibi = 0;                         // exponent of the smallest slope; 0: no ALiBi
  float alibi_scale = 1;                   // of the slopes
  bool qk_norm = false;
  bool norms_behind_rope = false;  // QK norms behind RoPE
  bool head_norms = false;         // QK norms with weights per head
  bool unit_head = false;          // the head's rows are normalised to length 1
  bool gated = true;               // gated MLP
  bool qkv_bias = false;
  bool attention_out_bias = false;
  bool mlp_bias = false;
  bool tied_embedding = false;
  bool scores = false;  // sequence classifier with a score head (score_head.h)
  bool head_bias = false;
  float attention_scale = 0;    // factor of the scores; 0: 1 / sqrt(head_dim)
  bool scale_by_layer = false;  // scores are also divided by (layer index + 1)
  float attention_cap = 0;      // soft cap of the scores; 0: none
  // Position-scaled queries (kernels::ScaleByPosition): layers without RoPE if others have RoPE.
  float query_growth = 0;  // 0: none
  int32_t query_period = 1, query_offset = 0;
  float qkv_limit = 0;  // clip limit of queries, keys and values; 0: none
  float embed_scale = 1;
  float residual_scale = 1;  // factor of the residual's addends
  // MLA: head_dim is a query's width, and the single key head has `latent` + `rotary_dims` columns.
  int32_t latent = 0;        // kv_lora_rank: compressed keys and values; 0: no MLA
  int32_t query_latent = 0;  // q_lora_rank: compressed queries; 0: none
  int32_t rotary_dims = 0;   // rotary dims: the last columns of a head in the checkpoint
  int32_t value_dim = 0;     // of a head
  float latent_norm_eps = 0;
  // Mixture of experts.
  int32_t num_experts = 0;        // per layer with experts; 0: none
  std::vector<bool> has_experts;  // by layer; empty: all. Other layers have a dense MLP
  int32_t experts_per_token = 0;
  int32_t expert_intermediate_size = 0;
  int32_t shared_intermediate_size = 0;  // shared expert; 0: none
  kernels::Scoring expert_scoring = kernels::Scoring::kSoftmax;
  bool experts_read_weighted = false;  // the routing weight scales an expert's input
  float expert_jitter_eps = 0;         // jitter eps of the sparse mixer
  bool renormalise_experts = false;    // weights of the selected experts are normalised to sum 1
  int32_t expert_groups = 1, expert_groups_kept = 1, expert_group_best = 1;  // kernels::Route
  float expert_scale = 1;
  // MTP layers behind the last layer (mtp.h); not in the model's graph.
  int32_t num_mtp_layers = 0;
  float logits_scale = 1;
  float logits_cap = 0;  // soft cap of the logits; 0: none
  // Encoder-decoder models. The encoder's traits are apart, with bidirectional attention.
  bool bidirectional = false;
  bool cross = false;         // decoder layers have cross attention
  int32_t bias_buckets = 0;   // relative position bias (T5); 0: none
  int32_t bias_distance = 0;  // distance from which on all keys share a bucket
  int32_t mel_bins = 0;       // the input is rows of audio features; 0: token ids
  int32_t decoder_start_id = io::kNone;
  bool key_bias = true;  // with qkv_bias: keys have one, too
  // Encoders of pictures (patch_width > 0).
  io::PictureFacts pictures;
  bool patch_bias = false;
  bool last_norm = false;      // norm behind the last layer
  float last_norm_eps = 0;     // 0: norm_eps
  int32_t projector_size = 0;  // columns between the projector's products
  bool projector_bias = false;
  int32_t feature_size = 0;  // columns of a feature: those of the decoder's embeddings
  float feature_scale = 1;
  bool averages_patches = false;  // a feature is of the mean of a block's patches
  int32_t position_side = 0;      // learned positions in the plane: rows on a side of their table
  std::vector<int32_t> tapped_layers;  // whose hidden states become a feature's further columns
  // Decoders: layers, from the first one on, behind which these columns are added.
  int32_t deep_layers = 0;
  bool row_end = false;  // kernels::Embed::row_end
  // Decoders with layers of cross attention to pictures in place of self-attention. Without the
  // encoder (`leaves_cross`) these layers add nothing and are left out.
  std::vector<bool> crosses;  // by layer; empty: none
  bool leaves_cross = true;
  bool is_cross_layer = false;    // see layer_traits()
  int32_t extra_embeddings = 0;   // rows of the embedding's table behind the vocabulary
  bool extra_row_end = false;     // row_end is the first of these
  int32_t num_global_layers = 0;  // encoders of tiles: layers behind the last norm, with gates

  int32_t num_crosses() const {
    return static_cast<int32_t>(std::count(crosses.begin(), crosses.end(), true));
  }
  // Arrangements of up to max_frames tiles, and one for none.
  int32_t num_tilings() const;
  int32_t places_of_tile() const { return pictures.grid * pictures.grid + pictures.class_tokens; }
};

// Conditions of weight rules.
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
constexpr bool has_class(const Traits& t) { return t.pictures.class_tokens > 0; }
constexpr bool patch_bias(const Traits& t) { return t.patch_bias; }
constexpr bool last_norm(const Traits& t) { return t.last_norm; }
constexpr bool projector_bias(const Traits& t) { return t.projector_bias; }
constexpr bool key_bias(const Traits& t) { return t.qkv_bias && t.key_bias; }
constexpr bool has_position_bias(const Traits& t) { return t.bias_buckets > 0; }
constexpr bool out_bias(const Traits& t) { return t.attention_out_bias; }
constexpr bool xielu(const Traits& t) { return t.xielu; }
constexpr bool gated(const Traits& t) { return t.gated; }
constexpr bool mlp_bias(const Traits& t) { return t.mlp_bias; }
constexpr bool has_query_latent(const Traits& t) { return t.query_latent > 0; }
constexpr bool no_query_latent(const Traits& t) { return t.query_latent == 0; }
// For the traits of one layer, see layer_traits().
constexpr bool crosses(const Traits& t) { return t.is_cross_layer; }
constexpr bool attends_itself(const Traits& t) { return !t.is_cross_layer; }
constexpr bool is_mixture(const Traits& t) { return t.num_experts > 0; }
constexpr bool is_dense(const Traits& t) { return t.num_experts == 0; }
constexpr bool has_shared_expert(const Traits& t) {
  return is_mixture(t) && t.shared_intermediate_size > 0;
}

// Traits of one layer: without experts if it has none; no unit QK norms in layers without RoPE.
Traits layer_traits(const Traits& traits, int32_t layer);

// Whether a weight is all ones and absent in checkpoints.
bool has_ones(const Traits& traits, std::string_view weight);

// Inverse frequencies and attention factor (formulas: Su et al. 2021 RoPE; Peng et al. 2023 YaRN;
// Meta's Llama 3.1 reference; Ding et al. 2024 LongRoPE), rounded to f32. `context`: longest
// sequence; longrope has other divisors beyond the original context.
io::RopeTable rope_table(const RopeTraits& rope, int32_t head_dim, int32_t context);

// The tables of all traits.ropes.
std::vector<io::RopeTable> rope_tables(const Traits& traits, int32_t context);

// The traits as "name: value" lines, for people.
std::string print(const Traits& traits);

}  // namespace nereid::models
