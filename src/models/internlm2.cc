// InternLM2: Llama with other names and queries, keys and values fused by key heads.
#include "models/all.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kInternlm2Model[] = {
    {"embed", "model.tok_embeddings.weight", Dim::kVocab, Dim::kHidden, Shard::kN},
    {"norm", "model.norm.weight", Dim::kHidden},
    {"head", "output.weight", Dim::kVocab, Dim::kHidden, Shard::kN, untied},
    {"head", "model.tok_embeddings.weight", Dim::kVocab, Dim::kHidden, Shard::kN, tied},
};
constexpr WeightRule kInternlm2Layer[] = {
    {"attn.norm", "attention_norm.weight", Dim::kHidden},
    {"attn.qkv", "attention.wqkv.weight", Dim::kQueryKeyValue, Dim::kHidden, Shard::kHeads, nullptr,
     false, Order::kByKeyHead},
    {"attn.qkv.bias", "attention.wqkv.bias", Dim::kQueryKeyValue, Dim::kOne, Shard::kHeads,
     qkv_bias, false, Order::kByKeyHead},
    {"attn.out", "attention.wo.weight", Dim::kHidden, Dim::kQuery, Shard::kHeads},
    {"attn.out.bias", "attention.wo.bias", Dim::kHidden, Dim::kOne, Shard::kNone, out_bias},
    {"mlp.norm", "ffn_norm.weight", Dim::kHidden},
    {"mlp.gate", "feed_forward.w1.weight", Dim::kIntermediate, Dim::kHidden, Shard::kN},
    {"mlp.up", "feed_forward.w3.weight", Dim::kIntermediate, Dim::kHidden, Shard::kN},
    {"mlp.down", "feed_forward.w2.weight", Dim::kHidden, Dim::kIntermediate, Shard::kK},
};

}  // namespace

const DecoderWeights kInternlm2Weights = {.model = kInternlm2Model, .layer = {kInternlm2Layer}};

Traits read_internlm2_traits(Config& c) {
  Traits t = read_decoder(c);
  t.ropes = {read_rope(c, t)};
  t.qkv_bias = t.attention_out_bias = c.boolean("bias", true);
  return t;
}

}  // namespace nereid::models
