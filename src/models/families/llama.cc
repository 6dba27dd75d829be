// Llama and Mistral.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {

const DecoderWeights kLlamaWeights = {.model = kLlamaModel,
                                      .layer = {kLlamaNorms, kLlamaQkv, kLlamaOut, kLlamaMlp}};

Traits read_llama_traits(Config& c) {
  Traits t = read_decoder(c, {.window = 0});
  t.sliding_window = 0;  // some files set it, no layer uses it
  t.ropes = {read_rope(c, t)};
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  t.mlp_bias = c.boolean("mlp_bias", false);
  return t;
}

// Absent fields have the values of the first Mistral; null: off.
Traits read_mistral_traits(Config& c) {
  constexpr int64_t kKvHeads = 8, kWindow = 4096;
  const auto kv_heads = c.mentions("num_key_value_heads") ? std::nullopt : std::optional(kKvHeads);
  Traits t =
      read_decoder(c, {.kv_heads = kv_heads, .window = c.mentions("sliding_window") ? 0 : kWindow});
  t.ropes = {read_rope(c, t)};
  return t;
}

// Position-scaled scores.
Traits read_ministral3_traits(Config& c) {
  Traits t = read_decoder(c, {.kv_heads = 8, .head_dim = 128, .window = 0, .norm_eps = 1e-5});
  t.ropes = {read_rope(c, t, {.theta = 1e6})};
  for (const std::string_view key : {"rope_scaling", "rope_parameters"})
    c.inside(key, [&](Config& inner) {
      t.query_growth = static_cast<float>(inner.number("llama_4_scaling_beta", 0, 1e3, 0));
      t.query_period =
          inner.integer("original_max_position_embeddings", 1, kMaxPositions, t.max_positions);
    });
  return t;
}

}  // namespace nereid::models
