#include "models/read_fields.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace nereid::models {
namespace {

constexpr std::string_view kFraction = "partial_rotary_factor";
constexpr int64_t kMaxExpertsInAll = 1 << 17;  // over all layers; three tensors per expert

void read_llama3(Config& c, RopeTraits& rope) {
  rope.scaling = RopeScaling::kLlama3;
  rope.low_freq_factor = c.number("low_freq_factor", 1e-3, 1e6);
  rope.high_freq_factor = c.number("high_freq_factor", 1e-3, 1e6);
  rope.original_positions = c.integer("original_max_position_embeddings", 1, kMaxPositions);
  if (c.status().ok() && rope.high_freq_factor < rope.low_freq_factor)
    c.fail("high_freq_factor", fmt::format("{} is below low_freq_factor {}", rope.high_freq_factor,
                                           rope.low_freq_factor));
}

// `mscale` applies together with `mscale_all_dim` only.
void read_yarn(Config& c, const Traits& t, RopeTraits& rope) {
  rope.scaling = RopeScaling::kYarn;
  rope.beta_fast = c.number("beta_fast", 1e-3, 1e6, 32);
  rope.beta_slow = c.number("beta_slow", 1e-3, 1e6, 1);
  rope.original_positions =
      c.integer("original_max_position_embeddings", 1, kMaxPositions, t.max_positions);
  if (c.has("attention_factor")) rope.attention_factor = c.number("attention_factor", 1e-3, 1e3);
  const double some = c.number("mscale", 0, 1e3, 0), all = c.number("mscale_all_dim", 0, 1e3, 0);
  const auto factor = [&](double m) { return 0.1 * m * std::log(rope.factor) + 1; };
  if (!rope.attention_factor && some > 0 && all > 0)
    rope.attention_factor = factor(some) / factor(all);
  if (all > 0) rope.score_factor = factor(all) * factor(all);
  rope.truncate = c.boolean("truncate", true);
}

// As transformers: `factor` if present, else the ratio of the contexts.
void read_longrope(Config& c, const Traits& t, const RopeFields& fields, int32_t original,
                   RopeTraits& rope) {
  rope.scaling = RopeScaling::kLongRope;
  rope.original_positions =
      c.integer("original_max_position_embeddings", 2, kMaxPositions, original);
  rope.factor = c.number("factor", 1e-3, 1e4, t.max_positions / rope.original_positions);
  const auto divisors = [&](std::string_view key) {
    std::vector<double> out = c.numbers(key, 1e-3, 1e6);
    const auto size = static_cast<size_t>(rope.dim / 2);
    if (c.status().ok() && out.size() != size)
      c.fail(key, fmt::format("{} numbers for {} frequencies", out.size(), size));
    return out;
  };
  rope.divisors = divisors("short_factor"), rope.long_divisors = divisors("long_factor");
  if (c.has("attention_factor"))
    rope.attention_factor = rope.long_attention_factor = c.number("attention_factor", 1e-3, 1e3);
  if (fields.own_mscale) {
    rope.attention_factor = c.number("short_mscale", 1e-3, 1e3);
    rope.long_attention_factor = c.number("long_mscale", 1e-3, 1e3);
    return;
  }
  for (const std::string_view key : {"short_mscale", "long_mscale"})
    if (c.has(key)) c.fail(key, "is not supported for this family");
}

// Reads the scaling variant and its numbers; theta and fraction may be inside (newer files).
void read_scaling(Config& c, const Traits& t, const RopeFields& fields, int32_t original,
                  RopeTraits& rope, double& fraction) {
  const std::string type = c.string("rope_type", c.string("type", "default"));
  rope.theta = c.number("rope_theta", 1.001, 1e12, rope.theta);
  if (fields.fraction)
    fraction = c.number(kFraction, 1e-6, 1, fraction);
  else
    c.require(kFraction, 1.0);
  rope.dim = static_cast<int32_t>(t.head_dim * fraction);
  rope.in_turn = c.boolean("mrope_interleaved", false);
  if (c.has("mrope_section")) rope.sections = c.integers("mrope_section", 1, kMaxHeadDim);
  if (type == "default" || (type == "mrope" && !rope.sections.empty()) ||
      (type == "axial" && fields.in_plane))
    return;
  if (type == "longrope" || type == "su") return read_longrope(c, t, fields, original, rope);
  if (type != "linear" && type != "dynamic" && type != "llama3" && type != "yarn")
    return c.fail("rope_type", fmt::format("'{}' is not one of default, linear, dynamic, llama3, "
                                           "yarn, longrope",
                                           type.substr(0, 40)));
  rope.factor = c.number("factor", 1, 1e4);
  // Dynamic NTK starts beyond max_position_embeddings, which bounds our positions.
  if (type == "dynamic") rope.factor = 1;
  if (type == "dynamic" && fields.ntk_alpha && c.has("alpha") && rope.dim > 2)
    rope.theta *= std::pow(c.number("alpha", 1e-3, 1e9), rope.dim / (rope.dim - 2.0));
  if (type == "linear") rope.scaling = RopeScaling::kLinear;
  if (type == "llama3") read_llama3(c, rope);
  if (type == "yarn") read_yarn(c, t, rope);
}

// Fields that change the computation, with their neutral values.
const std::pair<std::string_view, json::value> kNeutral[] = {
    {"add_cross_attention", false},
    {"alibi", false},
    {"attention_bias", false},
    {"attention_multiplier", nullptr},
    {"attn_logit_softcapping", nullptr},
    {"bias", false},
    {"clip_qkv", nullptr},
    {"dim_model_base", nullptr},
    {"embedding_multiplier", 1.0},
    {"final_logit_softcapping", nullptr},
    {"first_k_dense_replace", nullptr},
    {"is_encoder_decoder", false},
    {"lm_head_bias", false},
    {"logit_scale", 1.0},
    {"logits_scaling", 1.0},
    {"mlp_bias", false},
    {"mlp_only_layers", json::array()},
    {"multi_query", nullptr},
    {"n_routed_experts", nullptr},
    {"n_shared_experts", nullptr},
    {"no_bias", true},
    {"no_rope_layers", nullptr},
    {"num_experts", 0},
    {"num_local_experts", 0},
    {"partial_rotary_factor", 1.0},
    {"qk_layernorm", false},
    {"qkv_bias", false},
    {"query_pre_attn_scalar", nullptr},
    {"residual_multiplier", 1.0},
    {"rotary_dim", nullptr},
    {"rotary_pct", 1.0},
    {"scale_attn_by_inverse_layer_idx", false},
    {"scale_attn_weights", true},
    {"scale_depth", nullptr},
    {"scale_emb", 1.0},
    {"shared_expert_intermediate_size", 0},
    {"sliding_window", nullptr},
    {"swiglu_limit", nullptr},
    {"use_bias", false},
    {"use_bidirectional_attention", false},
    {"use_parallel_residual", false},
    {"use_qk_norm", false},
    {"use_qkv_bias", false},
    {"use_sliding_window", false},
};

}  // namespace

kernels::Activation read_activation(Config& config, std::string_view key,
                                    std::string_view fallback) {
  const std::string name = config.string(key, std::string(fallback));
  if (name == "silu" || name == "swish") return kernels::Activation::kSilu;
  if (name == "gelu") return kernels::Activation::kGelu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast")
    return kernels::Activation::kGeluTanh;
  if (name == "relu") return kernels::Activation::kRelu;
  if (name == "relu2") return kernels::Activation::kRelu2;
  if (name == "quick_gelu") return kernels::Activation::kGeluSigmoid;
  config.fail(key,
              fmt::format("'{}' is not one of silu, gelu, gelu_pytorch_tanh, quick_gelu, relu, "
                          "relu2",
                          name.substr(0, 40)));
  return kernels::Activation::kSilu;
}

RopeTraits read_rope(Config& c, const Traits& t, const RopeFields& fields) {
  RopeTraits rope;
  rope.theta = c.number(fields.theta_name, 1.001, 1e12, fields.theta);
  double fraction = fields.fraction.value_or(1);
  if (fields.fraction)
    for (const std::string_view name : {kFraction, fields.fraction_name})  // some files have both
      fraction = c.number(name, 1e-6, 1, fraction);
  else
    c.require(fields.fraction_name, 1.0);
  const int32_t original =
      c.integer("original_max_position_embeddings", 1, kMaxPositions, t.max_positions);
  rope.dim = static_cast<int32_t>(t.head_dim * fraction);
  for (const std::string_view key : {"rope_scaling", "rope_parameters"})
    c.inside(key, [&](Config& inner) { read_scaling(inner, t, fields, original, rope, fraction); });
  if (!rope.sections.empty() &&
      (rope.sections.size() != kernels::kPositionComponents ||
       std::accumulate(rope.sections.begin(), rope.sections.end(), int64_t{0}) != rope.dim / 2))
    c.fail("mrope_section",
           fmt::format("{} is not {} numbers of together {} frequencies",
                       fmt::join(rope.sections, ", "), kernels::kPositionComponents, rope.dim / 2));
  if (rope.dim < 2 || rope.dim % 2 != 0)
    c.fail(fields.fraction_name,
           fmt::format("{} of {} columns is not an even number", fraction, t.head_dim));
  return rope;
}

std::vector<RopeTraits> read_ropes_of_windows(Config& c, const Traits& t, const RopeFields& full,
                                              const RopeFields& windowed) {
  const auto by_kind = [](const json::object* object) {
    return object && (object->contains("full_attention") || object->contains("sliding_attention"));
  };
  const json::object* both = c.object("rope_parameters");
  if (!by_kind(both)) {
    const double theta = c.number(windowed.theta_name, 1.001, 1e12, windowed.theta);
    return {read_rope(c, t, full), {.theta = theta}};
  }
  std::vector<RopeTraits> ropes;
  const std::string where = c.where() + ": rope_parameters";
  Config outer(*both, where);
  for (const auto& [key, fields] :
       {std::pair("full_attention", full), std::pair("sliding_attention", windowed)}) {
    const json::object* one = outer.object(key);
    if (!one) {
      outer.fail(key, "is missing");
      continue;
    }
    const json::object wrapped{{"rope_parameters", *one}};
    Config inner(wrapped, fmt::format("{}: {}", where, key));
    ropes.push_back(read_rope(inner, t, fields));
    outer.add(inner.status());
  }
  c.add(outer.status());
  return ropes;
}

Traits read_decoder(Config& c, const DecoderDefaults& defaults, const DecoderNames& names) {
  Traits t;
  t.vocab_size = c.integer("vocab_size", 1, kMaxVocab, defaults.vocab);
  t.hidden_size = c.integer(names.hidden, 1, kMaxHidden);
  t.embed_size = t.hidden_size;
  std::optional<int64_t> intermediate;
  if (defaults.intermediate) intermediate = *defaults.intermediate * t.hidden_size;
  t.intermediate_size = c.integer(names.intermediate, 1, kMaxIntermediate, intermediate);
  t.num_layers = c.integer(names.layers, 1, kMaxLayers);
  t.num_heads = c.integer(names.heads, 1, kMaxHeads, defaults.heads);
  t.num_kv_heads =
      c.integer(names.kv_heads, 1, t.num_heads, defaults.kv_heads.value_or(t.num_heads));
  if (t.num_heads % t.num_kv_heads != 0)
    c.fail(names.kv_heads,
           fmt::format("{} does not divide {} {}", t.num_kv_heads, names.heads, t.num_heads));
  if (!c.has("head_dim") && !defaults.head_dim && t.hidden_size % t.num_heads != 0)
    c.fail(names.hidden,
           fmt::format("{} is not a multiple of {} {}", t.hidden_size, names.heads, t.num_heads));
  t.head_dim = c.integer("head_dim", 2, kMaxHeadDim,
                         defaults.head_dim.value_or(t.hidden_size / t.num_heads));
  if (t.head_dim % 2 != 0 || t.head_dim > kMaxHeadDim || t.head_dim < 2)
    c.fail("head_dim", fmt::format("{} is not an even number in [2, {}]", t.head_dim, kMaxHeadDim));
  t.max_positions = c.integer(names.positions, 1, kMaxPositions, defaults.positions);
  if (defaults.window)
    t.sliding_window = c.integer("sliding_window", 1, kMaxPositions, defaults.window);
  t.norm_eps = static_cast<float>(c.number(names.norm_eps, 0, 1, defaults.norm_eps));
  t.activation = read_activation(c, names.activation, defaults.activation);
  t.tied_embedding = c.boolean("tie_word_embeddings", defaults.tied);
  return t;
}

void read_rope_layers(Config& c, Traits& t) {
  const int32_t interval = c.integer("no_rope_layer_interval", 1, kMaxLayers, 4);
  const std::vector<int32_t> listed = c.integers("no_rope_layers", 0, 1);  // 1: RoPE
  for (int32_t i = 0; i < t.num_layers; ++i) t.has_rope.push_back((i + 1) % interval != 0);
  if (!listed.empty()) t.has_rope.assign(listed.begin(), listed.end());
  const auto layers = static_cast<size_t>(t.num_layers);
  if (t.has_rope.size() != layers)
    c.fail("no_rope_layers", fmt::format("{} numbers for {} layers", listed.size(), layers));
  t.has_rope.resize(layers);
}

void read_windows(Config& c, Traits& t, const std::function<bool(int32_t)>& usual,
                  std::string_view windowed) {
  const std::vector<std::string> kinds = c.strings("layer_types");
  if (!kinds.empty() && kinds.size() != static_cast<size_t>(t.num_layers))
    return c.fail("layer_types", fmt::format("{} kinds for {} layers", kinds.size(), t.num_layers));
  for (int32_t i = 0; i < t.num_layers; ++i) {
    if (kinds.empty()) {
      t.has_window.push_back(usual(i));
      continue;
    }
    const std::string& kind = kinds[static_cast<size_t>(i)];
    if (kind != windowed && kind != "full_attention")
      return c.fail("layer_types", fmt::format("'{}' is not one of {}, full_attention",
                                               kind.substr(0, 40), windowed));
    t.has_window.push_back(kind == windowed);
  }
}

void read_experts(Config& c, Traits& t, std::string_view count, int64_t usual, int64_t picked,
                  std::string_view picked_name) {
  // transformers 5 writes num_local_experts, earlier versions num_experts.
  for (const std::string_view name : {"num_experts", "num_local_experts"})
    if (!c.has(count) && c.has(name)) count = name;
  t.num_experts = c.integer(count, 1, kernels::kMaxExperts, usual);
  if (int64_t{t.num_experts} * t.num_layers > kMaxExpertsInAll)
    c.fail(count, fmt::format("{} experts in each of {} layers are more than {} in all",
                              t.num_experts, t.num_layers, kMaxExpertsInAll));
  t.experts_per_token = c.integer(picked_name, 1, t.num_experts, picked);
}

float read_cap(Config& c, std::string_view key) {
  return c.has(key) ? static_cast<float>(c.number(key, 1e-3, 1e6)) : 0;
}

void refuse_unread(Config& c) {
  for (const auto& [key, value] : kNeutral)
    if (!c.was_read(key)) c.require(key, value);
  if (c.was_read("layer_types")) return;
  for (const std::string& kind : c.strings("layer_types"))
    if (kind != "full_attention")
      c.fail("layer_types",
             fmt::format("'{}' is not supported, only 'full_attention' is", kind.substr(0, 40)));
}

}  // namespace nereid::models
