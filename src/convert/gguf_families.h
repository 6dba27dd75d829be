// Test only: models of tests/models as llama.cpp's converter writes them, each with its keys.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "base/test_gguf.h"
#include "convert/gguf_fixture.h"

namespace nereid::convert {

using namespace testing_only;

// A model of tests/models as written by the converter.
struct Family {
  std::string model, architecture;
  // Fields of config.json that a GGUF file cannot represent; null: absent.
  json::object config = {};
  json::object keys = {};  // prefixed with the architecture
  GgufWriterOptions options = {};
  std::vector<GgufBlob> tensors = {};  // in addition to the model's
};
inline const GgufWriterOptions kPermuted = {.permutes = true};
inline const GgufWriterOptions kPostNorm = {.norm_of_mlp = "post_attention_norm"};
inline const json::object kScales = {{"mscale", 0.9}, {"mscale_all_dim", 0.9}};
inline json::object yarn(double factor, int original, const json::object& scales = {}) {
  json::object scaling = {{"type", "yarn"},
                          {"factor", factor},
                          {"beta_fast", 32.0},
                          {"beta_slow", 1.0},
                          {"original_max_position_embeddings", original}};
  for (const auto& [key, value] : scales) scaling[key] = value;
  return scaling;
}
inline json::object yarn_keys(double factor, unsigned original) {
  return {{"rope.scaling.type", "yarn"},
          {"rope.scaling.factor", factor},
          {"rope.scaling.original_context_length", original},
          {"rope.scaling.yarn_beta_fast", 32.0},
          {"rope.scaling.yarn_beta_slow", 1.0}};
}
inline json::object joined(json::object a, const json::object& b) {
  for (const auto& [key, value] : b) a[key] = value;
  return a;
}
inline json::object deepseek_keys(unsigned still, unsigned value, double scale, unsigned groups,
                                  unsigned kept, unsigned shared, unsigned gating, bool normed) {
  json::object keys = {
      {"attention.head_count_kv", 1u},       {"attention.key_length", 24u},
      {"attention.value_length", 16u},       {"attention.key_length_mla", still + 8},
      {"attention.value_length_mla", value}, {"attention.q_lora_rank", 24u},
      {"attention.kv_lora_rank", 16u},       {"rope.dimension_count", 8u},
      {"leading_dense_block_count", 1u},     {"expert_gating_func", gating},
      {"expert_group_count", groups},        {"expert_group_used_count", kept},
      {"expert_shared_count", shared},       {"expert_weights_scale", scale}};
  if (normed) keys["expert_weights_norm"] = true;
  return keys;
}
inline json::object corrected_moe_keys() {  // DeepSeek-V3's router
  return {{"expert_gating_func", 2u},        {"expert_shared_count", 1u},
          {"expert_weights_scale", 2.5},     {"expert_weights_norm", true},
          {"expert_group_count", 1u},        {"expert_group_used_count", 1u},
          {"leading_dense_block_count", 1u}, {"rope.dimension_count", 8u}};
}
inline GgufBlob floats(const std::string& name, const std::vector<float>& values) {
  return {name,
          0,
          {std::ssize(values)},
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4)};
}
// Double with the shortest decimal text of `value` rounded to f32, as returned by the reader.
inline double shortest(double value) {
  return std::stod(fmt::format("{}", static_cast<float>(value)));
}

inline std::vector<Family> newer_families() {
  const json::object corrected = corrected_moe_keys();
  json::object whole_heads = corrected;
  whole_heads.erase("rope.dimension_count");
  const json::object windows = {{"attention.sliding_window", 32u},
                                {"attention.sliding_window_pattern", {true, false, true}},
                                {"expert_shared_feed_forward_length", 16u}};
  const json::object scales = {{"attention.scale", 0.4},
                               {"embedding_scale", 3.0},
                               {"residual_scale", 0.6},
                               {"logit_scale", 0.7}};
  // Values of the published models.
  json::object llama4;
  for (const char* field :
       {"attention_chunk_size", "no_rope_layer_interval", "no_rope_layers", "floor_scale",
        "attn_scale", "attn_temperature_tuning", "use_qk_norm", "rope_scaling"})
    llama4[field] = nullptr;
  // NTK alpha is folded into the base.
  const json::object alpha = {{"rope_scaling", nullptr},
                              {"rope_theta", shortest(1e4 * std::pow(20, 16 / 14.0))}};
  const std::vector<float> brief = {1, 1.1f, 1.3f, 1.5f}, far = {1, 2.5f, 7, 20};
  const json::object minicpm3 = {{"scale_emb", 12},
                                 {"scale_depth", 1.4},
                                 {"dim_model_base", 256},
                                 {"rope_scaling",
                                  {{"type", "longrope"},
                                   {"short_factor", {1.0, 1.1, 1.3, 1.5}},
                                   {"long_factor", {1.0, 2.5, 7.0, 20.0}},
                                   {"original_max_position_embeddings", 256}}}};
  GgufWriterOptions fused = kPostNorm;
  fused.fuses = true;
  return {
      {"llama4", "llama4", llama4, {{"interleave_moe_layer_step", 1u}}},
      {"llama4-text", "llama4", llama4, {{"interleave_moe_layer_step", 2u}}},
      {"glm4_moe", "glm4moe", {}, corrected, kPostNorm},
      {"glm4_moe", "glm4moe", {}, corrected, fused},
      {"dots1", "dots1", {}, whole_heads},
      {"exaone_moe", "exaone-moe", {}, joined(whole_heads, windows)},
      {"hunyuan_v1_dense", "hunyuan-dense", alpha},
      {"hunyuan_v1_moe",
       "hunyuan-moe",
       alpha,
       {{"expert_shared_count", 1u}, {"expert_shared_feed_forward_length", 16u}}},
      {"minimax_m2", "minimax-m2", {}, {{"rope.dimension_count", 8u}, {"expert_gating_func", 2u}}},
      {"granitemoe", "granitemoe", {}, scales, kPermuted},
      {"granitemoeshared",
       "granitemoe",
       {},
       joined(scales, {{"expert_shared_feed_forward_length", 24u}}),
       kPermuted},
      // Without experts: a plain MLP, as wide as the expert that all tokens share.
      {"granite",
       "granitemoe",
       {},
       joined(scales, {{"expert_shared_feed_forward_length", 64u}, {"feed_forward_length", 16u}}),
       kPermuted},
      {"granite", "granitemoe", {}, joined(scales, {{"expert_count", 0u}}), kPermuted},
      {"ernie4_5_moe",
       "ernie4_5-moe",
       {},
       {{"interleave_moe_layer_step", 1u},
        {"leading_dense_block_count", 1u},
        {"expert_shared_count", 2u},
        {"expert_shared_feed_forward_length", 32u}}},
      {"apertus", "apertus", {{"rope_scaling", nullptr}}},
      {"minicpm",
       "minicpm",
       {},
       {{"embedding_scale", 3.0}, {"residual_scale", 0.9 / std::sqrt(2)}, {"logit_scale", 2.0}},
       kPermuted},
      {"minicpm3",
       "minicpm3",
       minicpm3,
       {{"attention.q_lora_rank", 24u},
        {"attention.kv_lora_rank", 16u},
        {"rope.dimension_count", 8u}},
       {.splits_keys = false},
       {floats("rope_factors_short.weight", brief), floats("rope_factors_long.weight", far)}},
  };
}
inline std::vector<Family> all_families() {
  const json::object v2 = joined(deepseek_keys(16, 12, 1.5, 4, 2, 2, 1, false), yarn_keys(8, 32));
  const json::object v3 = joined(deepseek_keys(16, 12, 2.5, 2, 1, 1, 2, true), yarn_keys(8, 32));
  const json::object log = {{"rope.scaling.yarn_log_multiplier", 0.09}};
  json::object separate = joined(v2, log);  // files from before MLA absorption
  separate.erase("attention.key_length_mla"), separate.erase("attention.value_length_mla");
  separate["attention.key_length"] = 24u, separate["attention.value_length"] = 12u;
  json::object glm_flash = deepseek_keys(16, 12, 1.8, 1, 1, 1, 2, true);
  glm_flash.erase("expert_gating_func");
  const json::object small_window = {{"attention.sliding_window", 32u}};
  const json::object windows =
      joined(small_window, {{"attention.sliding_window_pattern", {true, false}}});
  GgufWriterOptions whole = kPermuted, unsplit;
  whole.fuses = true, unsplit.splits_keys = false;
  std::vector<Family> families = {
      {"llama", "llama", {}, {}, kPermuted},
      {"llama", "llama", {}, {}, whole},
      {"mixtral", "llama", {}, {}, kPermuted},
      {"mixtral", "llama", {}, {}, whole},
      {"llama-rope-yarn", "llama", {}, yarn_keys(4, 64), kPermuted},
      {"mistral3", "mistral3", {}, {}, kPermuted},
      {"ministral3",
       "mistral3",
       {},
       joined(yarn_keys(8, 16),
              {{"attention.temperature_scale", 0.3}, {"rope.scaling.yarn_log_multiplier", 1.0}}),
       kPermuted},
      {"qwen2", "qwen2"},
      {"qwen2", "qwen2", {}, {}, {.fuses = true}},
      {"qwen3", "qwen3"},
      {"qwen2_moe", "qwen2moe"},
      {"qwen3_moe", "qwen3moe"},
      {"deepseek_v2", "deepseek2", {{"rope_scaling", yarn(8, 32, kScales)}}, joined(v2, log)},
      {"deepseek_v2", "deepseek2", {{"rope_scaling", yarn(8, 32, kScales)}}, separate, unsplit},
      {"deepseek_v3-yarn", "deepseek2", {{"rope_scaling", yarn(8, 32, kScales)}}, joined(v3, log)},
      {"glm4_moe_lite", "deepseek2", {}, glm_flash},
      {"gpt_oss", "gpt-oss", {}, joined(small_window, yarn_keys(4, 64)), kPostNorm},
      {"gemma", "gemma"},
      {"gemma2",
       "gemma2",
       {{"query_pre_attn_scalar", 32}},
       joined(small_window, {{"attn_logit_softcapping", 50.0}, {"final_logit_softcapping", 30.0}}),
       kPostNorm},
      {"gemma3",
       "gemma3",
       {{"query_pre_attn_scalar", 16}},
       joined(small_window,
              {{"attention.sliding_window_pattern", 3u}, {"rope.freq_base_swa", 10000.0}}),
       kPostNorm},
      {"phi", "phi2", {}, {{"rope.dimension_count", 8u}}},
      {"phi3", "phi3", {}, {{"attention.sliding_window", 0u}}},
      {"glm", "chatglm", {}, {{"rope.dimension_count", 8u}}},
      {"glm4", "glm4", {}, {{"rope.dimension_count", 8u}}},
      {"granite",
       "granite",
       {},
       {{"attention.scale", 0.4},
        {"embedding_scale", 3.0},
        {"residual_scale", 0.6},
        {"logit_scale", 0.7}},
       kPermuted},
      {"arcee", "arcee", {}, {}, kPermuted},
      {"smollm3",
       "smollm3",
       {{"no_rope_layers", nullptr}, {"no_rope_layer_interval", 4}},
       {},
       kPermuted},
      {"nemotron", "nemotron", {}, {{"rope.dimension_count", 8u}}},
      {"ernie4_5", "ernie4_5"},
      {"seed_oss", "seed_oss", {}, {}, kPostNorm},
      {"cohere", "command-r", {}, {{"logit_scale", 0.125}}},
      {"cohere-norms", "command-r", {}, {{"logit_scale", 0.25}}},
      {"cohere2",
       "cohere2",
       {{"sliding_window_pattern", 4}},
       joined(small_window, {{"logit_scale", 0.25}})},
      {"olmo", "olmo", {}, {{"attention.clamp_kqv", 1.5}}, kPermuted},
      {"olmo2", "olmo2", {}, {}, kPostNorm},
      {"olmo3", "olmo2", {}, joined(windows, yarn_keys(4, 64)), kPostNorm},
      {"olmoe", "olmoe"},
      {"exaone4", "exaone4", {}, windows, kPostNorm},
      {"starcoder2", "starcoder2", {}, small_window},
      {"stablelm", "stablelm", {}, {{"rope.dimension_count", 4u}}},
      {"stablelm-parallel", "stablelm", {}, {{"rope.dimension_count", 6u}}},
      {"stablelm-norms", "stablelm", {}, {{"rope.dimension_count", 6u}}},
      {"falcon", "falcon"},
      {"falcon-groups", "falcon"},
      {"mpt", "mpt", {}, {{"attention.max_alibi_bias", 8.0}}},
      {"mpt-clip", "mpt", {}, {{"attention.max_alibi_bias", 16.0}, {"attention.clamp_kqv", 1.5}}},
      {"bloom", "bloom"},
      {"gpt_neox", "gptneox", {}, {{"rope.dimension_count", 8u}, {"use_parallel_residual", true}}},
      {"gpt_neox-in-turn",
       "gptneox",
       {},
       {{"rope.dimension_count", 4u}, {"use_parallel_residual", false}}},
      {"gpt2", "gpt2"},
      {"gpt_bigcode", "starcoder"},
  };
  for (Family& family : newer_families()) families.push_back(std::move(family));
  return families;
}

}  // namespace nereid::convert
