// Llama and its exact relatives (Mistral): one decoder, differences are traits. No fusion here:
// passes do that.
#include <cmath>
#include <limits>

#include "models/all.h"
#include "models/read_fields.h"
#include "models/weights.h"

namespace nereid::models {
namespace {

constexpr bool qkv_bias(const Traits& t) { return t.qkv_bias; }
constexpr bool out_bias(const Traits& t) { return t.attention_out_bias; }
constexpr bool mlp_bias(const Traits& t) { return t.mlp_bias; }

constexpr WeightRule kLlamaModel[] = {
    {"embed", "model.embed_tokens.weight", Dim::kVocab, Dim::kHidden, Shard::kN},
    {"norm", "model.norm.weight", Dim::kHidden},
    {"head", "lm_head.weight", Dim::kVocab, Dim::kHidden, Shard::kN, untied},
    {"head", "model.embed_tokens.weight", Dim::kVocab, Dim::kHidden, Shard::kN, tied},
};
constexpr WeightRule kLlamaLayer[] = {
    {"attn.norm", "input_layernorm.weight", Dim::kHidden},
    {"attn.q", "self_attn.q_proj.weight", Dim::kQuery, Dim::kHidden, Shard::kHeads},
    {"attn.k", "self_attn.k_proj.weight", Dim::kKeyValue, Dim::kHidden, Shard::kHeads},
    {"attn.v", "self_attn.v_proj.weight", Dim::kKeyValue, Dim::kHidden, Shard::kHeads},
    {"attn.out", "self_attn.o_proj.weight", Dim::kHidden, Dim::kQuery, Shard::kHeads},
    {"attn.q.bias", "self_attn.q_proj.bias", Dim::kQuery, Dim::kOne, Shard::kHeads, qkv_bias},
    {"attn.k.bias", "self_attn.k_proj.bias", Dim::kKeyValue, Dim::kOne, Shard::kHeads, qkv_bias},
    {"attn.v.bias", "self_attn.v_proj.bias", Dim::kKeyValue, Dim::kOne, Shard::kHeads, qkv_bias},
    {"attn.out.bias", "self_attn.o_proj.bias", Dim::kHidden, Dim::kOne, Shard::kNone, out_bias},
    {"mlp.norm", "post_attention_layernorm.weight", Dim::kHidden},
    {"mlp.gate", "mlp.gate_proj.weight", Dim::kIntermediate, Dim::kHidden, Shard::kN},
    {"mlp.up", "mlp.up_proj.weight", Dim::kIntermediate, Dim::kHidden, Shard::kN},
    {"mlp.down", "mlp.down_proj.weight", Dim::kHidden, Dim::kIntermediate, Shard::kK},
    {"mlp.gate.bias", "mlp.gate_proj.bias", Dim::kIntermediate, Dim::kOne, Shard::kN, mlp_bias},
    {"mlp.up.bias", "mlp.up_proj.bias", Dim::kIntermediate, Dim::kOne, Shard::kN, mlp_bias},
    {"mlp.down.bias", "mlp.down_proj.bias", Dim::kHidden, Dim::kOne, Shard::kNone, mlp_bias},
};

graph::ValueId llama_layer(graph::Builder& b, const Traits& t, const Weights& w, int32_t index,
                           const std::string& name, graph::ValueId x) {
  const float scale = 1 / std::sqrt(static_cast<float>(t.head_dim));
  graph::ValueId h = b.norm(name + "attn.norm", x, w["attn.norm"], {t.norm_eps});
  const graph::ValueId q = b.linear(name + "attn.q", h, w["attn.q"], w["attn.q.bias"]);
  const graph::ValueId k = b.linear(name + "attn.k", h, w["attn.k"], w["attn.k.bias"]);
  const graph::ValueId v = b.linear(name + "attn.v", h, w["attn.v"], w["attn.v.bias"]);
  const graph::ValueId qkv = b.rope(name + "attn.rope", b.concat(name + "attn.qkv", {q, k, v}));
  const graph::ValueId a = b.attention(name + "attn", qkv, index, scale, t.sliding_window);
  x = b.add(name + "attn.sum", x,
            b.linear(name + "attn.out", a, w["attn.out"], w["attn.out.bias"]));
  h = b.norm(name + "mlp.norm", x, w["mlp.norm"], {t.norm_eps});
  const graph::ValueId gate = b.linear(name + "mlp.gate", h, w["mlp.gate"], w["mlp.gate.bias"]);
  const graph::ValueId up = b.linear(name + "mlp.up", h, w["mlp.up"], w["mlp.up.bias"]);
  h = b.glu(name + "mlp.act", b.concat(name + "mlp.gate_up", {gate, up}), t.activation);
  return b.add(name + "mlp.sum", x,
               b.linear(name + "mlp.down", h, w["mlp.down"], w["mlp.down.bias"]));
}

}  // namespace

Traits read_llama_traits(Config& config) {
  Traits t = read_decoder(config, {});
  t.qkv_bias = t.attention_out_bias = config.boolean("attention_bias", false);
  t.mlp_bias = config.boolean("mlp_bias", false);
  t.sliding_window = 0;
  return t;
}

// Files that leave these two out mean the values of the first Mistral, null means off.
Traits read_mistral_traits(Config& config) {
  constexpr int64_t kKvHeads = 8, kWindow = 4096;
  const auto kv_heads =
      config.mentions("num_key_value_heads") ? std::nullopt : std::optional(kKvHeads);
  const int64_t window = config.mentions("sliding_window") ? 0 : kWindow;
  return read_decoder(config, {.kv_heads = kv_heads, .window = window});
}

StatusOr<graph::Graph> build_llama(const Traits& t, io::ModelFacts facts) {
  graph::Builder b(std::move(facts));
  const Weights w(b, t, kLlamaModel);
  graph::ValueId x = b.embed("embed", w["embed"]);
  for (int32_t i = 0; i < t.num_layers; ++i) {
    const std::string name = fmt::format("layers.{}.", i);
    const Weights layer_weights(b, t, kLlamaLayer, name, "model." + name);
    x = llama_layer(b, t, layer_weights, i, name, x);
  }
  x = b.linear("head", b.norm("norm", x, w["norm"], {t.norm_eps}), w["head"]);
  return std::move(b).finish(b.sampled_rows("logits", x));
}

bool llama_ignores(const Traits& t, std::string_view tensor) {
  return tensor.ends_with(".rotary_emb.inv_freq") ||
         (t.tied_embedding && tensor == "lm_head.weight");
}

}  // namespace nereid::models
