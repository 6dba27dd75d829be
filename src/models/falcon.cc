// Falcon: LayerNorm, layers mostly parallel, with one norm or two; queries, keys and values fused
// by key heads.
#include "models/all.h"
#include "models/megatron_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

using FalconCondition = bool(const Traits&);
constexpr bool falcon_one_norm(const Traits& t) { return !t.own_norms; }
constexpr bool falcon_two_norms(const Traits& t) { return t.own_norms; }
constexpr bool falcon_in_turn(const Traits& t) { return !t.parallel; }
constexpr WeightRule falcon_norm(std::string_view name, std::string_view tensor,
                                 FalconCondition* when) {
  return {name, tensor, Dim::kHidden, Dim::kOne, Shard::kNone, when};
}

constexpr WeightRule kFalconModel[] = {
    {"embed", "transformer.word_embeddings.weight", Dim::kVocab, Dim::kHidden, Shard::kN},
    {"norm", "transformer.ln_f.weight", Dim::kHidden},
    {"norm.bias", "transformer.ln_f.bias", Dim::kHidden},
    {"head", "transformer.word_embeddings.weight", Dim::kVocab, Dim::kHidden, Shard::kN, tied},
    {"head", "lm_head.weight", Dim::kVocab, Dim::kHidden, Shard::kN, untied},
};
constexpr WeightRule kFalconNorms[] = {
    falcon_norm("attn.norm", "input_layernorm.weight", falcon_one_norm),
    falcon_norm("attn.norm.bias", "input_layernorm.bias", falcon_one_norm),
    falcon_norm("mlp.norm", "post_attention_layernorm.weight", falcon_in_turn),
    falcon_norm("mlp.norm.bias", "post_attention_layernorm.bias", falcon_in_turn),
    falcon_norm("attn.norm", "ln_attn.weight", falcon_two_norms),
    falcon_norm("attn.norm.bias", "ln_attn.bias", falcon_two_norms),
    falcon_norm("mlp.norm", "ln_mlp.weight", falcon_two_norms),
    falcon_norm("mlp.norm.bias", "ln_mlp.bias", falcon_two_norms),
};

}  // namespace

const DecoderWeights kFalconWeights = {.model = kFalconModel,
                                       .layers = "transformer.h.{}.",
                                       .layer = {kFalconNorms, kMegatronAttention, kMegatronMlp}};

// The first models have one key head or as many as query heads.
Traits read_falcon_traits(Config& c) {
  Traits t = read_decoder(
      c,
      {.intermediate = 4, .positions = 2048, .norm_eps = 1e-5, .activation = "gelu", .tied = true},
      {.intermediate = "ffn_hidden_size",
       .kv_heads = "num_kv_heads",
       .norm_eps = "layer_norm_epsilon",
       .activation = "activation"});
  t.ropes = {read_rope(c, t)};
  t.layer_norm = true;
  t.qkv_bias = t.attention_out_bias = t.mlp_bias = c.boolean("bias", false);
  const bool newer = c.boolean("new_decoder_architecture", false);
  const bool one_key_head = c.boolean("multi_query", true);
  if (!newer) t.num_kv_heads = one_key_head ? 1 : t.num_heads;
  t.parallel = c.boolean("parallel_attn", true) || newer;
  t.own_norms = c.integer("num_ln_in_parallel_attn", 1, 2, newer ? 2 : 1) == 2;
  if (newer) c.require("parallel_attn", true);
  if (!newer) c.require("num_ln_in_parallel_attn", 1);
  return t;
}

}  // namespace nereid::models
