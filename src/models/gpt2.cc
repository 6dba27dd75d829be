// GPT-2: LayerNorm, learned positions, one fused projection, weights stored transposed.
#include <cmath>

#include "models/all.h"
#include "models/read_fields.h"
#include "models/weights.h"

namespace nereid::models {
namespace {

constexpr WeightRule kGpt2Model[] = {
    {"embed", "wte.weight", Dim::kVocab, Dim::kHidden, Shard::kN},
    {"positions", "wpe.weight", Dim::kPositions, Dim::kHidden},
    {"norm", "ln_f.weight", Dim::kHidden},
    {"norm.bias", "ln_f.bias", Dim::kHidden},
    {"head", "wte.weight", Dim::kVocab, Dim::kHidden, Shard::kN, tied},
};
constexpr WeightRule kGpt2Head[] = {
    {"head", "lm_head.weight", Dim::kVocab, Dim::kHidden, Shard::kN, untied},
};
constexpr WeightRule kGpt2Layer[] = {
    {"attn.norm", "ln_1.weight", Dim::kHidden},
    {"attn.norm.bias", "ln_1.bias", Dim::kHidden},
    {"attn.qkv", "attn.c_attn.weight", Dim::kQueryKeyValue, Dim::kHidden, Shard::kHeads, nullptr,
     true},
    {"attn.qkv.bias", "attn.c_attn.bias", Dim::kQueryKeyValue, Dim::kOne, Shard::kHeads},
    {"attn.out", "attn.c_proj.weight", Dim::kHidden, Dim::kQuery, Shard::kHeads, nullptr, true},
    {"attn.out.bias", "attn.c_proj.bias", Dim::kHidden},
    {"mlp.norm", "ln_2.weight", Dim::kHidden},
    {"mlp.norm.bias", "ln_2.bias", Dim::kHidden},
    {"mlp.up", "mlp.c_fc.weight", Dim::kIntermediate, Dim::kHidden, Shard::kN, nullptr, true},
    {"mlp.up.bias", "mlp.c_fc.bias", Dim::kIntermediate, Dim::kOne, Shard::kN},
    {"mlp.down", "mlp.c_proj.weight", Dim::kHidden, Dim::kIntermediate, Shard::kK, nullptr, true},
    {"mlp.down.bias", "mlp.c_proj.bias", Dim::kHidden},
};

graph::ValueId gpt2_layer(graph::Builder& b, const Traits& t, const Weights& w, int32_t index,
                          const std::string& name, graph::ValueId x) {
  const graph::Builder::NormKind norm{.eps = t.norm_eps, .centered = true};
  const float scale = 1 / std::sqrt(static_cast<float>(t.head_dim));
  const auto product = [&](const std::string& part, graph::ValueId from) {
    return b.linear(name + part, from, w[part], w[part + ".bias"]);
  };
  graph::ValueId h = b.norm(name + "attn.norm", x, w["attn.norm"], norm, w["attn.norm.bias"]);
  h = b.attention(name + "attn", product("attn.qkv", h), index, scale, 0);
  x = b.add(name + "attn.sum", x, product("attn.out", h));
  h = b.norm(name + "mlp.norm", x, w["mlp.norm"], norm, w["mlp.norm.bias"]);
  h = b.activate(name + "mlp.act", product("mlp.up", h), t.activation);
  return b.add(name + "mlp.sum", x, product("mlp.down", h));
}

}  // namespace

Traits read_gpt2_traits(Config& c) {
  Traits t;
  t.vocab_size = c.integer("vocab_size", 1, kMaxVocab, 50257);
  t.hidden_size = c.integer("n_embd", 1, kMaxHidden, 768);
  t.num_layers = c.integer("n_layer", 1, kMaxLayers, 12);
  t.num_heads = t.num_kv_heads = c.integer("n_head", 1, kMaxHeads, 12);
  t.max_positions = c.integer("n_positions", 1, kMaxPositions, 1024);
  t.intermediate_size = c.integer("n_inner", 1, kMaxIntermediate, 4 * int64_t{t.hidden_size});
  t.head_dim = t.hidden_size / t.num_heads;
  if (t.hidden_size % t.num_heads != 0 || t.head_dim % 2 != 0 || t.head_dim > kMaxHeadDim)
    c.fail("n_embd", fmt::format("{} does not divide into {} heads of an even width up to {}",
                                 t.hidden_size, t.num_heads, kMaxHeadDim));
  t.norm_eps = static_cast<float>(c.number("layer_norm_epsilon", 0, 1, 1e-5));
  t.activation = read_activation(c, "activation_function", "gelu_new");
  t.tied_embedding = c.boolean("tie_word_embeddings", true);
  c.require("scale_attn_weights", true);
  c.require("scale_attn_by_inverse_layer_idx", false);
  c.require("add_cross_attention", false);
  if (c.has("quantization_config"))
    c.fail("quantization_config", "quantised checkpoints are not supported");
  return t;
}

StatusOr<graph::Graph> build_gpt2(const Traits& t, io::ModelFacts facts) {
  graph::Builder b(std::move(facts));
  const std::string scope = "transformer.";
  const Weights w(b, t, kGpt2Model, "", scope);
  graph::ValueId x = b.embed("embed", w["embed"]);
  x = b.add_positions("positions", x, w["positions"]);
  for (int32_t i = 0; i < t.num_layers; ++i) {
    const std::string name = fmt::format("layers.{}.", i);
    const Weights layer_weights(b, t, kGpt2Layer, name, fmt::format("{}h.{}.", scope, i));
    x = gpt2_layer(b, t, layer_weights, i, name, x);
  }
  x = b.norm("norm", x, w["norm"], {.eps = t.norm_eps, .centered = true}, w["norm.bias"]);
  const Weights head(b, t, kGpt2Head);
  x = b.linear("head", x, t.tied_embedding ? w["head"] : head["head"]);
  return std::move(b).finish(b.sampled_rows("logits", x));
}

// Masks that old checkpoints carry; a head that is the embedding.
bool gpt2_ignores(const Traits& t, std::string_view tensor) {
  return tensor.ends_with(".attn.bias") || tensor.ends_with(".attn.masked_bias") ||
         (t.tied_embedding && tensor.ends_with("lm_head.weight"));
}

}  // namespace nereid::models
