// Baichuan: Llama with fused QKV. The larger models have ALiBi instead of a rotary embedding, and
// no `max_position_embeddings`. Baichuan 2 normalises the head's rows to length 1.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kBaichuanQkv[] = {
    qkv_rule("self_attn.W_pack.weight"),
};

constexpr WeightRule unit_head_rule(std::string_view tensor) {
  WeightRule rule = head_rule(tensor, unit_head);
  rule.unit_rows = true;
  return rule;
}
constexpr WeightRule kBaichuanModel[] = {
    embed_rule("model.embed_tokens.weight"),
    norm_rule("norm", "model.norm.weight"),
    head_rule("lm_head.weight", plain_head),
    unit_head_rule("lm_head.weight"),
};

}  // namespace

const DecoderWeights kBaichuanWeights = {
    .model = kBaichuanModel, .layer = {kLlamaNorms, kBaichuanQkv, kLlamaOut, kLlamaMlp}};

Traits read_baichuan_traits(Config& c) {
  constexpr int32_t kSecondVocab = 125696;
  // The TensorRT-LLM layout has max_position_embeddings in both cases.
  const bool rotary = c.has("max_position_embeddings") &&
                      !c.string("position_embedding_type", "").starts_with("alibi");
  Traits t =
      read_decoder(c, {}, {.positions = rotary ? "max_position_embeddings" : "model_max_length"});
  if (rotary) t.ropes = {read_rope(c, t)};
  if (!rotary) t.alibi = 8;
  t.unit_head = t.vocab_size == kSecondVocab || c.mentions("z_loss_weight");
  c.require("tie_word_embeddings", false);
  return t;
}

}  // namespace nereid::models
