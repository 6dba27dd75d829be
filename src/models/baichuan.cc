// Baichuan: Llama with queries, keys and values fused; the larger models have ALiBi instead of a
// rotary embedding, and no `max_position_embeddings`.
#include "models/all.h"
#include "models/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kBaichuanQkv[] = {
    {"attn.qkv", "self_attn.W_pack.weight", Dim::kQueryKeyValue, Dim::kHidden, Shard::kHeads},
};

}  // namespace

const DecoderWeights kBaichuanWeights = {
    .model = kLlamaModel, .layer = {kLlamaNorms, kBaichuanQkv, kLlamaOut, kLlamaMlp}};

Traits read_baichuan_traits(Config& c) {
  constexpr int32_t kSecondVocab = 125696;
  // The TensorRT-LLM layout has max_position_embeddings for both.
  const bool rotary = c.has("max_position_embeddings") &&
                      !c.string("position_embedding_type", "").starts_with("alibi");
  Traits t =
      read_decoder(c, {}, {.positions = rotary ? "max_position_embeddings" : "model_max_length"});
  if (rotary) t.ropes = {read_rope(c, t)};
  if (!rotary) t.alibi = 8;
  if (t.vocab_size == kSecondVocab)
    c.fail("vocab_size", "125696 is Baichuan 2's, whose head has normalised rows: not supported");
  return t;
}

}  // namespace nereid::models
