// Gemma 3, text: windows on most layers, norms of queries and keys, four norms a layer, weights of
// norms around zero, a rotary base of its own for the windowed layers.
#include <cmath>

#include "models/all.h"
#include "models/read_fields.h"
#include "models/weights.h"

namespace nereid::models {
namespace {

constexpr int32_t kGlobalRope = 0, kLocalRope = 1;  // in Traits::ropes

constexpr WeightRule kGemma3Model[] = {
    {"embed", "model.embed_tokens.weight", Dim::kVocab, Dim::kHidden, Shard::kN},
    {"norm", "model.norm.weight", Dim::kHidden},
    {"head", "model.embed_tokens.weight", Dim::kVocab, Dim::kHidden, Shard::kN, tied},
    {"head", "lm_head.weight", Dim::kVocab, Dim::kHidden, Shard::kN, untied},
};
constexpr WeightRule kGemma3Layer[] = {
    {"attn.norm", "input_layernorm.weight", Dim::kHidden},
    {"attn.q", "self_attn.q_proj.weight", Dim::kQuery, Dim::kHidden, Shard::kHeads},
    {"attn.k", "self_attn.k_proj.weight", Dim::kKeyValue, Dim::kHidden, Shard::kHeads},
    {"attn.v", "self_attn.v_proj.weight", Dim::kKeyValue, Dim::kHidden, Shard::kHeads},
    {"attn.q.norm", "self_attn.q_norm.weight", Dim::kHead},
    {"attn.k.norm", "self_attn.k_norm.weight", Dim::kHead},
    {"attn.out", "self_attn.o_proj.weight", Dim::kHidden, Dim::kQuery, Shard::kHeads},
    {"attn.out.norm", "post_attention_layernorm.weight", Dim::kHidden},
    {"mlp.norm", "pre_feedforward_layernorm.weight", Dim::kHidden},
    {"mlp.gate", "mlp.gate_proj.weight", Dim::kIntermediate, Dim::kHidden, Shard::kN},
    {"mlp.up", "mlp.up_proj.weight", Dim::kIntermediate, Dim::kHidden, Shard::kN},
    {"mlp.down", "mlp.down_proj.weight", Dim::kHidden, Dim::kIntermediate, Shard::kK},
    {"mlp.out.norm", "post_feedforward_layernorm.weight", Dim::kHidden},
};

// Which layers have the window: a list of kinds, or every layer but each n-th.
void read_layers(Config& c, Traits& t) {
  const std::vector<std::string> kinds = c.strings("layer_types");
  const int32_t pattern = c.integer("sliding_window_pattern", 1, kMaxLayers, 6);
  if (!kinds.empty() && kinds.size() != static_cast<size_t>(t.num_layers))
    return c.fail("layer_types", fmt::format("{} kinds for {} layers", kinds.size(), t.num_layers));
  for (int32_t i = 0; i < t.num_layers; ++i) {
    if (kinds.empty()) {
      t.has_window.push_back((i + 1) % pattern != 0);
      continue;
    }
    const std::string& kind = kinds[static_cast<size_t>(i)];
    if (kind != "sliding_attention" && kind != "full_attention")
      return c.fail("layer_types", fmt::format("'{}' is not one of sliding_attention, "
                                               "full_attention",
                                               kind.substr(0, 40)));
    t.has_window.push_back(kind == "sliding_attention");
  }
}

void read_ropes(Config& c, Traits& t) {
  t.ropes.resize(2);
  if (const json::object* both = c.object("rope_parameters")) {
    const std::string where = c.where() + ": rope_parameters";
    Config outer(*both, where);
    for (const auto& [key, rope] :
         {std::pair("full_attention", kGlobalRope), std::pair("sliding_attention", kLocalRope)}) {
      const json::object* one = outer.object(key);
      if (!one) {
        outer.fail(key, "is missing");
        continue;
      }
      const json::object wrapped{{"rope_parameters", *one}};
      Config inner(wrapped, fmt::format("{}: {}", where, key));
      t.ropes[static_cast<size_t>(rope)] = read_rope(inner, t.max_positions);
      outer.add(inner.status());
    }
    return c.add(outer.status());
  }
  t.ropes[kGlobalRope] = read_rope(c, t.max_positions);
  if (!c.has("rope_theta")) t.ropes[kGlobalRope].theta = 1e6;
  t.ropes[kLocalRope].theta = c.number("rope_local_base_freq", 1.001, 1e12, 1e4);
}

graph::ValueId gemma3_layer(graph::Builder& b, const Traits& t, const Weights& w, int32_t index,
                            const std::string& name, graph::ValueId x) {
  const graph::Builder::NormKind norm{.eps = t.norm_eps, .weight_offset = 1};
  const bool window = t.has_window[static_cast<size_t>(index)];
  const auto product = [&](const std::string& part, graph::ValueId from) {
    return b.linear(name + part, from, w[part]);
  };
  const auto sandwich = [&](const std::string& part, graph::ValueId from) {
    return b.norm(name + part, from, w[part], norm, graph::kNone, DType::kF32);
  };
  graph::ValueId h = b.norm(name + "attn.norm", x, w["attn.norm"], norm);
  const graph::ValueId q =
      b.head_norm(name + "attn.q.norm", product("attn.q", h), w["attn.q.norm"], norm);
  const graph::ValueId k =
      b.head_norm(name + "attn.k.norm", product("attn.k", h), w["attn.k.norm"], norm);
  const graph::ValueId v = product("attn.v", h);
  const graph::ValueId qkv = b.rope(name + "attn.rope", b.concat(name + "attn.qkv", {q, k, v}),
                                    window ? kLocalRope : kGlobalRope);
  h = b.attention(name + "attn", qkv, index, t.attention_scale, window ? t.sliding_window : 0);
  x = b.add(name + "attn.sum", x, sandwich("attn.out.norm", product("attn.out", h)));
  h = b.norm(name + "mlp.norm", x, w["mlp.norm"], norm);
  h = b.glu(name + "mlp.act",
            b.concat(name + "mlp.gate_up", {product("mlp.gate", h), product("mlp.up", h)}),
            t.activation);
  return b.add(name + "mlp.sum", x, sandwich("mlp.out.norm", product("mlp.down", h)));
}

}  // namespace

Traits read_gemma3_traits(Config& c) {
  Traits t;
  t.vocab_size = c.integer("vocab_size", 1, kMaxVocab, 262208);
  t.hidden_size = c.integer("hidden_size", 1, kMaxHidden, 2304);
  t.intermediate_size = c.integer("intermediate_size", 1, kMaxIntermediate, 9216);
  t.num_layers = c.integer("num_hidden_layers", 1, kMaxLayers, 26);
  t.num_heads = c.integer("num_attention_heads", 1, kMaxHeads, 8);
  t.num_kv_heads = c.integer("num_key_value_heads", 1, t.num_heads, std::min(t.num_heads, 4));
  if (t.num_heads % t.num_kv_heads != 0)
    c.fail("num_key_value_heads",
           fmt::format("{} does not divide num_attention_heads {}", t.num_kv_heads, t.num_heads));
  t.head_dim = c.integer("head_dim", 2, kMaxHeadDim, 256);
  if (t.head_dim % 2 != 0) c.fail("head_dim", fmt::format("{} is odd", t.head_dim));
  t.max_positions = c.integer("max_position_embeddings", 1, kMaxPositions, 131072);
  t.sliding_window = c.integer("sliding_window", 1, kMaxPositions, 4096);
  t.norm_eps = static_cast<float>(c.number("rms_norm_eps", 0, 1, 1e-6));
  t.activation = read_activation(c, "hidden_activation", "gelu_pytorch_tanh");
  t.attention_scale =
      static_cast<float>(1 / std::sqrt(c.number("query_pre_attn_scalar", 1e-3, 1e6, 256)));
  t.logits_cap = c.has("final_logit_softcapping")
                     ? static_cast<float>(c.number("final_logit_softcapping", 1e-3, 1e6))
                     : 0;
  t.tied_embedding = c.boolean("tie_word_embeddings", true);
  read_layers(c, t);
  read_ropes(c, t);
  c.require("attention_bias", false);
  c.require("use_bidirectional_attention", false);
  for (const std::string_view key : {"attn_logit_softcapping", "quantization_config"})
    if (c.has(key)) c.fail(key, "is not supported for this family");
  return t;
}

StatusOr<graph::Graph> build_gemma3(const Traits& t, io::ModelFacts facts) {
  graph::Builder b(std::move(facts));
  const Weights w(b, t, kGemma3Model);
  // The factor has the precision of the model's type.
  const float scale = to_float(to_bf16(std::sqrt(static_cast<float>(t.hidden_size))));
  graph::ValueId x = b.embed("embed", w["embed"], scale);
  for (int32_t i = 0; i < t.num_layers; ++i) {
    const std::string name = fmt::format("layers.{}.", i);
    const Weights layer_weights(b, t, kGemma3Layer, name, "model." + name);
    x = gemma3_layer(b, t, layer_weights, i, name, x);
  }
  x = b.norm("norm", x, w["norm"], {.eps = t.norm_eps, .weight_offset = 1});
  x = b.linear("head", x, w["head"]);
  if (t.logits_cap > 0) x = b.soft_cap("head.cap", x, t.logits_cap);
  return std::move(b).finish(b.sampled_rows("logits", x));
}

bool gemma3_ignores(const Traits& t, std::string_view tensor) {
  return t.tied_embedding && tensor == "lm_head.weight";
}

}  // namespace nereid::models
