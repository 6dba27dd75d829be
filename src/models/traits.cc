#include "models/traits.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace nereid::models {
namespace {

// The dimension with `rotations` wavelengths in the original context.
double yarn_dimension(const RopeTraits& rope, int32_t dim, double rotations) {
  return dim * std::log(rope.original_positions / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(rope.theta));
}

double yarn(const RopeTraits& rope, int32_t dim, int32_t i, double frequency) {
  double low = yarn_dimension(rope, dim, rope.beta_fast);
  double high = yarn_dimension(rope, dim, rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, dim - 1.0);
  if (high <= low) high = low + 0.001;
  const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
  return frequency / rope.factor * ramp + frequency * (1 - ramp);
}

double llama3(const RopeTraits& rope, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength > rope.original_positions / rope.low_freq_factor) return frequency / rope.factor;
  if (wavelength <= rope.original_positions / rope.high_freq_factor) return frequency;
  const double smooth = (rope.original_positions / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

std::string_view name_of(RopeScaling scaling) {
  constexpr std::string_view kNames[] = {"none", "linear", "llama3", "yarn", "longrope"};
  return kNames[static_cast<size_t>(scaling)];
}

// Which component of the position turns each frequency (kernels::kPositionComponents).
void set_components(const RopeTraits& rope, io::RopeTable& table) {
  constexpr int32_t kRow = 1, kColumn = 2;
  for (int32_t i = 0; rope.in_turn && i < std::ssize(table.inverse_frequencies); ++i) {
    const auto component = static_cast<int32_t>(i % kernels::kPositionComponents);
    const int32_t turn = i / kernels::kPositionComponents;
    table.components.push_back(turn < rope.sections[static_cast<size_t>(component)] ? component
                                                                                    : 0);
  }
  for (size_t i = 0; !rope.in_turn && i < rope.sections.size(); ++i)
    table.components.insert(table.components.end(), static_cast<size_t>(rope.sections[i]),
                            static_cast<int32_t>(i));
  if (rope.plane == Plane::kNone) return;
  const std::vector<float> all = std::exchange(table.inverse_frequencies, {});
  const size_t step = rope.plane == Plane::kAlternating ? 2 : 1;
  for (const int32_t component : {kRow, kColumn})
    for (size_t i = step == 2 && component == kColumn ? 1 : 0; i < all.size(); i += step) {
      table.inverse_frequencies.push_back(all[i]);
      table.components.push_back(component);
    }
}

}  // namespace

Traits layer_traits(const Traits& traits, int32_t layer) {
  Traits own = traits;
  if (!own.has_experts.empty() && !own.has_experts[static_cast<size_t>(layer)]) own.num_experts = 0;
  if (!own.has_rope.empty() && !own.has_rope[static_cast<size_t>(layer)])
    own.unit_head_norms = false;
  own.is_cross_layer = !own.crosses.empty() && own.crosses[static_cast<size_t>(layer)];
  return own;
}

int32_t Traits::num_tilings() const {
  int32_t count = 1;
  for (int32_t rows = 1; rows <= pictures.max_frames; ++rows) count += pictures.max_frames / rows;
  return count;
}

bool has_ones(const Traits& traits, std::string_view weight) {
  if (traits.unit_norms && weight.ends_with("norm")) return true;
  return traits.unit_head_norms &&
         (weight.ends_with("attn.q.norm") || weight.ends_with("attn.k.norm"));
}

io::RopeTable rope_table(const RopeTraits& rope, int32_t head_dim, int32_t context) {
  io::RopeTable table;
  const bool is_long = context > rope.original_positions;
  const std::vector<double>& divisors = is_long ? rope.long_divisors : rope.divisors;
  int32_t dim = rope.dim > 0 ? rope.dim : head_dim;
  if (rope.plane == Plane::kRepeated) dim /= 2;
  for (int32_t i = 0; i < dim / 2; ++i) {
    double frequency = std::pow(rope.theta, -2.0 * i / dim);
    switch (rope.scaling) {
      case RopeScaling::kNone:
        break;
      case RopeScaling::kLinear:
        frequency /= rope.factor;
        break;
      case RopeScaling::kLlama3:
        frequency = llama3(rope, frequency);
        break;
      case RopeScaling::kYarn:
        frequency = yarn(rope, dim, i, frequency);
        break;
      case RopeScaling::kLongRope:
        frequency /= divisors[static_cast<size_t>(i)];
        break;
    }
    table.inverse_frequencies.push_back(static_cast<float>(frequency));
  }
  set_components(rope, table);
  if (rope.scaling == RopeScaling::kYarn) {
    const double usual = rope.factor > 1 ? 0.1 * std::log(rope.factor) + 1 : 1;
    table.attention_factor = static_cast<float>(rope.attention_factor.value_or(usual));
  }
  if (rope.scaling == RopeScaling::kLongRope) {
    const double usual =
        rope.factor > 1 ? std::sqrt(1 + std::log(rope.factor) / std::log(rope.original_positions))
                        : 1;
    const auto& given = is_long ? rope.long_attention_factor : rope.attention_factor;
    table.attention_factor = static_cast<float>(given.value_or(usual));
  }
  return table;
}

std::vector<io::RopeTable> rope_tables(const Traits& t, int32_t context) {
  std::vector<io::RopeTable> tables;
  for (const RopeTraits& rope : t.ropes) tables.push_back(rope_table(rope, t.head_dim, context));
  return tables;
}

namespace {

// Text with a line per value.
struct Lines {
  std::string text;

  void operator()(std::string_view name, const auto& value) {
    text += fmt::format("{}: {}\n", name, value);
  }
  void count(std::string_view name, const std::vector<bool>& layers) {
    if (!layers.empty()) (*this)(name, std::count(layers.begin(), layers.end(), true));
  }
};

void print_sizes(const Traits& t, Lines& line) {
  line("vocab_size", t.vocab_size);
  line("hidden_size", t.hidden_size);
  if (t.embed_size != t.hidden_size) line("embed_size", t.embed_size);
  line("intermediate_size", t.intermediate_size);
  line("num_layers", t.num_layers);
  line("num_heads", t.num_heads);
  line("num_kv_heads", t.num_kv_heads);
  line("head_dim", t.head_dim);
  line("max_positions", t.max_positions);
  line("sliding_window", t.sliding_window);
  if (t.chunked) line("chunked", t.chunked);
  line.count("layers_with_window", t.has_window);
  line.count("layers_with_rope", t.has_rope);
}

void print_block(const Traits& t, Lines& line) {
  line("norm_eps", t.norm_eps);
  if (t.layer_norm) line("layer_norm", t.layer_norm);
  if (t.embed_norm) line("embed_norm", t.embed_norm);
  if (t.norms_behind) line("norms_behind", t.norms_behind);
  if (t.norm_weight_offset != 0) line("norm_weight_offset", t.norm_weight_offset);
  if (t.normed_residual) line("normed_residual", t.normed_residual);
  if (t.parallel) line("parallel", t.parallel);
  if (t.own_norms) line("own_norms", t.own_norms);
  if (!t.gated) line("gated", t.gated);
  line("activation", t.xielu ? "xielu" : names_of(t.activation)[static_cast<size_t>(t.activation)]);
  if (t.glu_limit > 0) line("glu_limit", t.glu_limit);
  if (t.glu_up_offset != 0) line("glu_up_offset", t.glu_up_offset);
}

void print_ropes(const Traits& t, Lines& line) {
  for (size_t i = 0; i < t.ropes.size(); ++i) {
    const RopeTraits& rope = t.ropes[i];
    const std::string name = t.ropes.size() == 1 ? "rope" : fmt::format("ropes[{}]", i);
    line(name + ".theta", rope.theta);
    if (rope.dim > 0 && rope.dim != t.head_dim) line(name + ".dim", rope.dim);
    line(name + ".scaling", name_of(rope.scaling));
    if (rope.scaling != RopeScaling::kNone) line(name + ".factor", rope.factor);
    if (!rope.sections.empty())
      line(name + ".sections", fmt::format("{}", fmt::join(rope.sections, ", ")));
    if (rope.in_turn) line(name + ".in_turn", rope.in_turn);
    if (rope.plane != Plane::kNone) line(name + ".plane", static_cast<int>(rope.plane));
    if (rope.original_positions > 0) line(name + ".original_positions", rope.original_positions);
  }
  if (t.rope_interleaved) line("rope_interleaved", t.rope_interleaved);
}

void print_attention(const Traits& t, Lines& line) {
  if (t.alibi > 0) line("alibi", t.alibi);
  if (t.alibi_scale != 1) line("alibi_scale", t.alibi_scale);
  if (t.qk_norm) line("qk_norm", t.qk_norm);
  if (t.norms_behind_rope) line("norms_behind_rope", t.norms_behind_rope);
  if (t.head_norms) line("head_norms", t.head_norms);
  if (t.unit_head) line("unit_head", t.unit_head);
  if (t.unit_head_norms) line("unit_head_norms", t.unit_head_norms);
  if (t.unit_norms) line("unit_norms", t.unit_norms);
  if (t.latent > 0) {
    line("latent", t.latent);
    line("query_latent", t.query_latent);
    line("rotary_dims", t.rotary_dims);
    line("value_dim", t.value_dim);
    line("latent_norm_eps", t.latent_norm_eps);
  }
  line("qkv_bias", t.qkv_bias);
  line("attention_out_bias", t.attention_out_bias);
  line("mlp_bias", t.mlp_bias);
  line("tied_embedding", t.tied_embedding);
}

void print_numbers(const Traits& t, Lines& line) {
  if (t.scores) line("scores", t.scores);
  if (t.head_bias) line("head_bias", t.head_bias);
  if (t.attention_scale > 0) line("attention_scale", t.attention_scale);
  if (t.attention_cap > 0) line("attention_cap", t.attention_cap);
  if (t.query_growth != 0)
    line("query_growth",
         fmt::format("{} every {} from {}", t.query_growth, t.query_period, t.query_offset));
  if (t.scale_by_layer) line("scale_by_layer", t.scale_by_layer);
  if (t.qkv_limit > 0) line("qkv_limit", t.qkv_limit);
  if (t.residual_scale != 1) line("residual_scale", t.residual_scale);
  if (t.embed_scale != 1) line("embed_scale", t.embed_scale);
}

void print_experts(const Traits& t, Lines& line) {
  line("num_experts", t.num_experts);
  line.count("layers_with_experts", t.has_experts);
  line("experts_per_token", t.experts_per_token);
  line("expert_intermediate_size", t.expert_intermediate_size);
  if (t.shared_intermediate_size > 0) line("shared_intermediate_size", t.shared_intermediate_size);
  if (t.expert_jitter_eps > 0) line("expert_jitter_eps", t.expert_jitter_eps);
  line("expert_scoring", names_of(t.expert_scoring)[static_cast<size_t>(t.expert_scoring)]);
  line("renormalise_experts", t.renormalise_experts);
  if (t.experts_read_weighted) line("experts_read_weighted", t.experts_read_weighted);
  if (t.expert_groups > 1)
    line("expert_groups", fmt::format("{} of {}, by {}", t.expert_groups_kept, t.expert_groups,
                                      t.expert_group_best));
  if (t.expert_scale != 1) line("expert_scale", t.expert_scale);
}

}  // namespace

std::string print(const Traits& t) {
  Lines lines;
  print_sizes(t, lines);
  print_block(t, lines);
  print_ropes(t, lines);
  print_attention(t, lines);
  print_numbers(t, lines);
  if (t.num_experts > 0) print_experts(t, lines);
  if (t.bidirectional) lines("bidirectional", t.bidirectional);
  if (t.cross) lines("cross_attention", t.cross);
  if (t.bias_buckets > 0)
    lines("position_bias", fmt::format("{} buckets to {}", t.bias_buckets, t.bias_distance));
  if (t.mel_bins > 0) lines("mel_bins", t.mel_bins);
  if (t.pictures.patch_width > 0) {
    lines("patch_width", t.pictures.patch_width);
    lines("merge", t.pictures.merge);
    lines("projector_size", t.projector_size);
    lines("feature_size", t.feature_size);
    if (t.feature_scale != 1) lines("feature_scale", t.feature_scale);
    if (t.position_side > 0) lines("position_side", t.position_side);
    if (!t.tapped_layers.empty())
      lines("tapped_layers", fmt::format("{}", fmt::join(t.tapped_layers, ", ")));
    if (t.averages_patches) lines("averages_patches", t.averages_patches);
    if (t.pictures.whole_pictures) lines("whole_pictures", t.pictures.whole_pictures);
    if (t.pictures.whole_prompts) lines("whole_prompts", t.pictures.whole_prompts);
  }
  if (t.deep_layers > 0) lines("deep_layers", t.deep_layers);
  if (t.row_end) lines("row_end", t.row_end);
  if (t.num_crosses() > 0) lines("cross_layers", t.num_crosses());
  if (t.num_global_layers > 0) lines("global_layers", t.num_global_layers);
  if (t.logits_scale != 1) lines("logits_scale", t.logits_scale);
  if (t.logits_cap > 0) lines("logits_cap", t.logits_cap);
  return lines.text;
}

}  // namespace nereid::models
