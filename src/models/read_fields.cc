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

RopeTraits read_rope(Config& config, int32_t max_positions) {
  RopeTraits rope;
  rope.theta = config.number("rope_theta", 1.001, 1e12, 10000);
  for (const std::string_view key : {"rope_scaling", "rope_parameters"})
    if (const json::object* scaling = config.object(key)) {
      Config inner(*scaling, fmt::format("{}: {}", config.where(), key));
      read_scaling(inner, max_positions, rope);
      config.add(inner.status());
    }
  return rope;
}

}  // namespace nereid::models
