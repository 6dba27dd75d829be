#include "models/read_fields.h"

namespace nereid::models {
namespace {

void read_llama3(Config& c, RopeTraits& rope) {
  rope.scaling = RopeScaling::kLlama3;
  rope.low_freq_factor = c.number("low_freq_factor", 1e-3, 1e6);
  rope.high_freq_factor = c.number("high_freq_factor", 1e-3, 1e6);
  rope.original_positions = c.integer("original_max_position_embeddings", 1, kMaxPositions);
  if (c.status().ok() && rope.high_freq_factor <= rope.low_freq_factor)
    c.fail("high_freq_factor", fmt::format("{} is not above low_freq_factor {}",
                                           rope.high_freq_factor, rope.low_freq_factor));
}

void read_yarn(Config& c, int32_t max_positions, RopeTraits& rope) {
  rope.scaling = RopeScaling::kYarn;
  rope.beta_fast = c.number("beta_fast", 1e-3, 1e6, 32);
  rope.beta_slow = c.number("beta_slow", 1e-3, 1e6, 1);
  rope.original_positions =
      c.integer("original_max_position_embeddings", 1, kMaxPositions, max_positions);
  if (c.has("attention_factor")) rope.attention_factor = c.number("attention_factor", 1e-3, 1e3);
  for (const std::string_view key : {"mscale", "mscale_all_dim"})
    if (c.has(key)) c.fail(key, "is not supported for this family");
  c.require("truncate", true);
}

// The variant's name and its numbers; `theta` may stand inside too (newer files).
void read_scaling(Config& c, int32_t max_positions, RopeTraits& rope) {
  const std::string type = c.string("rope_type", c.string("type", "default"));
  rope.theta = c.number("rope_theta", 1.001, 1e12, rope.theta);
  if (type == "default") return;
  if (type != "linear" && type != "llama3" && type != "yarn")
    return c.fail("rope_type", fmt::format("'{}' is not one of default, linear, llama3, yarn",
                                           type.substr(0, 40)));
  rope.factor = c.number("factor", 1, 1e4);
  if (type == "linear") rope.scaling = RopeScaling::kLinear;
  if (type == "llama3") read_llama3(c, rope);
  if (type == "yarn") read_yarn(c, max_positions, rope);
}

}  // namespace

kernels::Activation read_activation(Config& config, std::string_view key,
                                    std::string_view fallback) {
  const std::string name = config.string(key, std::string(fallback));
  if (name == "silu" || name == "swish") return kernels::Activation::kSilu;
  if (name == "gelu") return kernels::Activation::kGelu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return kernels::Activation::kGeluTanh;
  if (name == "relu") return kernels::Activation::kRelu;
  if (name == "relu2") return kernels::Activation::kRelu2;
  config.fail(key, fmt::format("'{}' is not one of silu, gelu, gelu_pytorch_tanh, relu, relu2",
                               name.substr(0, 40)));
  return kernels::Activation::kSilu;
}

RopeTraits read_rope(Config& config, int32_t max_positions, double theta) {
  RopeTraits rope;
  rope.theta = config.number("rope_theta", 1.001, 1e12, theta);
  for (const std::string_view key : {"rope_scaling", "rope_parameters"})
    if (const json::object* scaling = config.object(key)) {
      Config inner(*scaling, fmt::format("{}: {}", config.where(), key));
      read_scaling(inner, max_positions, rope);
      config.add(inner.status());
    }
  return rope;
}

Traits read_decoder(Config& c, const DecoderDefaults& defaults) {
  Traits t;
  t.vocab_size = c.integer("vocab_size", 1, kMaxVocab);
  t.hidden_size = c.integer("hidden_size", 1, kMaxHidden);
  t.intermediate_size = c.integer("intermediate_size", 1, kMaxIntermediate);
  t.num_layers = c.integer("num_hidden_layers", 1, kMaxLayers);
  t.num_heads = c.integer("num_attention_heads", 1, kMaxHeads);
  t.num_kv_heads =
      c.integer("num_key_value_heads", 1, t.num_heads, defaults.kv_heads.value_or(t.num_heads));
  if (t.num_heads % t.num_kv_heads != 0)
    c.fail("num_key_value_heads",
           fmt::format("{} does not divide num_attention_heads {}", t.num_kv_heads, t.num_heads));
  if (!c.has("head_dim") && t.hidden_size % t.num_heads != 0)
    c.fail("hidden_size", fmt::format("{} is not a multiple of num_attention_heads {}",
                                      t.hidden_size, t.num_heads));
  t.head_dim = c.integer("head_dim", 2, kMaxHeadDim, t.hidden_size / t.num_heads);
  if (t.head_dim % 2 != 0 || t.head_dim > kMaxHeadDim || t.head_dim < 2)
    c.fail("head_dim", fmt::format("{} is not an even number in [2, {}]", t.head_dim, kMaxHeadDim));
  t.max_positions = c.integer("max_position_embeddings", 1, kMaxPositions);
  t.sliding_window = c.integer("sliding_window", 1, kMaxPositions, defaults.window);
  t.norm_eps = static_cast<float>(c.number("rms_norm_eps", 0, 1, defaults.norm_eps));
  t.activation = read_activation(c, "hidden_act", "silu");
  t.ropes = {read_rope(c, t.max_positions, defaults.theta)};
  t.tied_embedding = c.boolean("tie_word_embeddings", false);
  if (c.has("quantization_config"))
    c.fail("quantization_config", "quantised checkpoints are not supported");
  c.require("partial_rotary_factor", 1.0);
  return t;
}

}  // namespace nereid::models
