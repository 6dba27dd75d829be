#include "models/formats/gguf.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "base/gguf.h"
#include "models/config.h"
#include "models/formats/gguf_architectures.h"

namespace nereid::models {
namespace {

constexpr GgufKeyRow kDecoderKeys[] = {
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"block_count", "num_hidden_layers"},
    {"feed_forward_length", "intermediate_size"},
    {"vocab_size", "vocab_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.sliding_window", "sliding_window"},
    {"attention.scale", "attention_multiplier"},
    {"attention.clamp_kqv", "clip_qkv"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"logit_scale", "logit_scale"},
    {"embedding_scale", "embedding_multiplier"},
    {"residual_scale", "residual_multiplier"},
    {"rope.freq_base", "rope_theta"},
    {"expert_count", "num_local_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_weights_norm", "norm_topk_prob"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"}};

// Keys that change the computation of some architecture, with their neutral values.
const std::pair<std::string_view, json::value> kNeutralKeys[] = {
    {"attention.causal", true},
    {"attention.key_length_swa", nullptr},
    {"attention.max_alibi_bias", 0},
    {"attention.output_scale", nullptr},
    {"attention.temperature_scale", 0},
    {"attention.value_scale", nullptr},
    {"deepstack_mapping", nullptr},
    {"expert_gating_func", 1},
    {"expert_group_count", 1},
    {"expert_weights_scale", 1},
    {"interleave_moe_layer_step", 1},
    {"leading_dense_block_count", 0},
    {"rope.dimension_sections", nullptr},
    {"router_logit_softcapping", 0},
    {"swiglu_clamp_exp", nullptr},
    {"swiglu_clamp_shexp", nullptr}};

// The shortest decimal number that rounds to an f32 value: the number before rounding.
json::value unrounded(const json::value& value) {
  const double* number = value.if_double();
  const bool fits = number && std::abs(*number) <= std::numeric_limits<float>::max();
  if (!fits || *number != static_cast<float>(*number)) return value;
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(*number)).ptr;
  double shortest = *number;
  std::from_chars(text, end, shortest);
  return shortest;
}

// A list with equal entries for all layers becomes one value.
const json::value& of_all_layers(const json::value& value) {
  const json::array* list = value.if_array();
  const bool is_one =
      list && !list->empty() &&
      std::ranges::all_of(*list, [&](const json::value& x) { return x == list->front(); });
  return is_one ? list->front() : value;
}

void read_keys(const GgufArchitecture& row, GgufFields& f) {
  const auto set = [&](const GgufKeyRow& key) {
    const json::value* value = f.find(key.key);
    if (value && !key.field.empty()) f.config[key.field] = unrounded(of_all_layers(*value));
  };
  for (const GgufKeyRow& key : kDecoderKeys)
    if (std::ranges::find(row.keys, key.key, &GgufKeyRow::key) == row.keys.end()) set(key);
  for (const GgufKeyRow& key : row.keys) set(key);
  for (const char* off :
       {"sliding_window", "num_local_experts", "final_logit_softcapping", "attn_logit_softcapping"})
    if (const json::value* value = f.config.if_contains(off);
        value && value->is_number() && value->to_number<double>() == 0)
      f.config.erase(off);
  if (!f.config.contains("num_local_experts")) f.config.erase("num_experts_per_tok");
}

Status refuse_keys(const GgufArchitecture& row, const GgufFields& f) {
  for (const auto& [key, neutral] : kNeutralKeys) {
    const json::value* value = f.find(key);
    if (!value || std::ranges::find(row.keys, key, &GgufKeyRow::key) != row.keys.end()) continue;
    const bool is_same = neutral.is_number() && value->is_number()
                             ? value->to_number<double>() == 0 ||
                                   value->to_number<double>() == neutral.to_number<double>()
                             : *value == neutral;
    if (!is_same)
      return unsupported("key '{}.{}': {} is not supported for this architecture",
                         f.layout.architecture, key, json::serialize(*value).substr(0, 40));
  }
  return ok();
}

// MTP layers are included in `block_count` and come last.
Status read_layers(const GgufArchitecture& row, GgufFields& f, GgufLayout& layout) {
  const auto own = std::ranges::find(row.keys, "block_count", &GgufKeyRow::key);
  const std::string_view field = own == row.keys.end() ? "num_hidden_layers" : own->field;
  const double extra = f.number("nextn_predict_layers", 0), all = f.number("block_count", 0);
  if (extra == 0) return ok();
  if (!(extra >= 1) || extra != std::floor(extra) || extra >= all || f.layers() == 0)
    return invalid_argument(
        "key '{}.nextn_predict_layers': {} is not a whole number below '{}.block_count', {}",
        layout.architecture, extra, layout.architecture, all);
  layout.num_layers = static_cast<int32_t>(f.layers());
  layout.num_mtp_layers = static_cast<int32_t>(extra);
  f.config[field] = f.layers();
  return ok();
}

// Per-layer numbers that are metadata instead of tensors.
Status read_numbers(const GgufArchitecture& row, const GgufFields& f, GgufLayout& layout) {
  for (const GgufLayerNumber& number : row.numbers) {
    const json::value* value = f.metadata.if_contains(number.key);
    if (!value && number.weight.empty()) continue;
    if (!value) return invalid_argument("key '{}': is missing", number.key);
    const json::array* list = value->if_array();
    if (list && std::ssize(*list) != f.layers())
      return invalid_argument("key '{}': {} numbers for {} layers", number.key, list->size(),
                              f.layers());
    for (int64_t layer = 0; layer < f.layers(); ++layer) {
      const json::value& one = list ? (*list)[static_cast<size_t>(layer)] : *value;
      const double x =
          one.is_number() ? one.to_number<double>() : std::numeric_limits<double>::quiet_NaN();
      if (!(std::abs(x) <= std::numeric_limits<float>::max()))
        return invalid_argument("key '{}': {} is not a number", number.key,
                                json::serialize(one).substr(0, 40));
      if (!number.weight.empty())
        layout.numbers[fmt::format("blk.{}.{}.weight", layer, number.word)] = static_cast<float>(x);
      else if (std::abs(x - number.only) > std::abs(number.only) / 100)
        return unsupported("key '{}': {} is not supported, only {} is", number.key, x, number.only);
    }
  }
  return ok();
}

using Parts = std::span<const GgufPart>;

// A tensor and the file part with it; nullptr: none.
std::pair<const GgufTensor*, const GgufPart*> find_tensor(Parts parts, std::string_view name) {
  for (const GgufPart& part : parts) {
    const auto it = std::ranges::find(part.gguf.tensors, name, &GgufTensor::name);
    if (it != part.gguf.tensors.end()) return {&*it, &part};
  }
  return {};
}

// Numbers of an F32 vector; empty: no such tensor.
StatusOr<json::array> read_vector(Parts parts, std::string_view name) {
  json::array numbers;
  const auto [tensor, part] = find_tensor(parts, name);
  if (!tensor) return numbers;
  const auto data = part->file.bytes().subspan(part->gguf.data_begin);
  const int64_t count = tensor->shape.size() == 1 ? tensor->shape[0] : 0;
  if (tensor->type != 0 || count < 1 || count > 1024 || tensor->offset > data.size() ||
      data.size() - tensor->offset < static_cast<uint64_t>(count) * 4)
    return invalid_argument("tensor '{}': is not 1 to 1024 numbers of F32", name);
  for (int64_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, data.data() + tensor->offset + i * 4, 4);
    numbers.push_back(unrounded(double{value}));
  }
  return numbers;
}

// Divisors of the RoPE frequencies: for all contexts, or for short and long ones.
Status read_divisors(Parts parts, GgufFields& f) {
  const json::value* original = f.find("rope.scaling.original_context_length");
  const json::value* factor = f.find("rope.scaling.attn_factor");
  ASSIGN_OR_RETURN(const json::array all, read_vector(parts, "rope_freqs.weight"));
  ASSIGN_OR_RETURN(const json::array brief, read_vector(parts, "rope_factors_short.weight"));
  ASSIGN_OR_RETURN(const json::array far, read_vector(parts, "rope_factors_long.weight"));
  if (all.empty() && far.empty()) {
    const json::value* type = f.find("rope.scaling.type");
    if (!type || *type != json::value("longrope")) return ok();
    return invalid_argument(
        "key '{}.rope.scaling.type': longrope needs tensor 'rope_factors_long.weight', which is "
        "missing",
        f.layout.architecture);
  }
  json::object scaling = {{"rope_type", "longrope"},
                          {"short_factor", all.empty() ? brief : all},
                          {"long_factor", all.empty() ? far : all}};
  scaling["original_max_position_embeddings"] =
      original && all.empty() ? *original : f.config["max_position_embeddings"];
  if (!all.empty())
    scaling["attention_factor"] = 1.0;
  else if (factor)
    scaling["attention_factor"] = unrounded(*factor);
  f.config["rope_scaling"] = std::move(scaling);
  return ok();
}

Status read_scaling(GgufFields& f) {
  const json::value* type = f.find("rope.scaling.type");
  if (!type || *type == json::value("none") || *type == json::value("longrope")) return ok();
  if (*type != json::value("linear") && *type != json::value("yarn"))
    return unsupported("key '{}.rope.scaling.type': {} is not one of none, linear, yarn, longrope",
                       f.layout.architecture, json::serialize(*type).substr(0, 40));
  const bool is_yarn = *type == json::value("yarn");
  json::object scaling = {{"rope_type", *type}, {"factor", 1.0}};
  const auto take = [&](std::string_view key, std::string_view field) {
    if (const json::value* value = f.find(key)) scaling[field] = unrounded(*value);
  };
  take("rope.scaling.factor", "factor");
  if (is_yarn) {
    take("rope.scaling.original_context_length", "original_max_position_embeddings");
    take("rope.scaling.yarn_attn_factor", "attention_factor");
    take("rope.scaling.yarn_beta_fast", "beta_fast");
    take("rope.scaling.yarn_beta_slow", "beta_slow");
    // DeepSeek's files have a tenth of it.
    const bool is_tenth = f.layout.architecture == "deepseek2";
    take("rope.scaling.yarn_log_multiplier", "mscale_all_dim");
    const json::value* scale = scaling.if_contains("mscale_all_dim");
    if (scale && scale->is_number() && std::abs(scale->to_number<double>()) < 1e6) {
      const auto whole = static_cast<float>(scale->to_number<double>() * (is_tenth ? 10 : 1));
      const json::value factor = unrounded(double{whole});
      scaling["mscale_all_dim"] = factor;
      scaling["mscale"] = factor;
    }
  }
  f.config["rope_scaling"] = std::move(scaling);
  return ok();
}

// Absent RoPE base: 10000; absent rotary width: the whole head.
void read_rotation(GgufFields& f) {
  if (!f.config.contains("rope_theta")) f.config["rope_theta"] = 10000.0;
  const double dim = f.head_dim(), rotary_dims = f.number("rope.dimension_count", dim);
  // A quarter column protects the product from rounding below a whole number.
  const double fraction = rotary_dims == dim ? 1 : (rotary_dims + 0.25) / dim;
  f.config["partial_rotary_factor"] = std::isfinite(fraction) ? fraction : 0.0;
}

void read_token_ids(GgufFields& f) {
  for (const auto& [theirs, ours] : {std::pair("bos", "bos"), std::pair("padding", "pad")})
    if (const json::value* value =
            f.metadata.if_contains(fmt::format("tokenizer.ggml.{}_token_id", theirs)))
      f.config[fmt::format("{}_token_id", ours)] = *value;
  if (const std::vector<int32_t> ends = gguf_end_ids(f.metadata); !ends.empty())
    f.config["eos_token_id"] = json::value_from(ends);
}

// The converter writes common widths for some families; the tensors have the real ones.
void read_sizes(const GgufArchitecture& row, Parts parts, GgufFields& f) {
  const auto columns = [&](std::string_view name) {
    const GgufTensor* tensor = find_tensor(parts, name).first;
    return tensor && tensor->shape.size() == 2 ? tensor->shape : std::vector<int64_t>();
  };
  if (const auto embed = columns("token_embd.weight"); !embed.empty())
    f.config["vocab_size"] = embed[0];
  constexpr std::string_view kWidth = "feed_forward_length";
  const auto own = std::ranges::find(row.keys, kWidth, &GgufKeyRow::key);
  if (const auto down = columns("blk.0.ffn_down.weight"); !down.empty())
    f.config[own == row.keys.end() ? "intermediate_size" : own->field] = down[1];
}

StatusOr<json::object> config_of(Parts parts, GgufLayout& layout) {
  const json::object& keys = parts.front().gguf.metadata;
  Config metadata(keys, "metadata");
  layout.architecture = metadata.string("general.architecture");
  RETURN_IF_ERROR(metadata.status());
  const GgufArchitecture* row = find_gguf_architecture(layout.architecture);
  if (!row)
    return unsupported("key 'general.architecture': '{}' is not one of {}",
                       layout.architecture.substr(0, 40), gguf_architecture_names());
  for (const GgufPart& part : parts)
    for (const GgufTensor& tensor : part.gguf.tensors) layout.tensors.insert(tensor.name);
  GgufFields f{keys, layout};
  f.config["architectures"] = json::array{json::value(row->family)};
  read_keys(*row, f);
  RETURN_IF_ERROR(refuse_keys(*row, f));
  RETURN_IF_ERROR(read_layers(*row, f, layout));
  RETURN_IF_ERROR(read_numbers(*row, f, layout));
  read_sizes(*row, parts, f);
  f.config["tie_word_embeddings"] = !f.has("output.weight");
  for (const auto& [field, tensor] : row->flags)
    f.config[field] =
        f.has(tensor) || (tensor.ends_with("attn_q.bias") && f.has("blk.0.attn_qkv.bias"));
  read_token_ids(f);
  read_rotation(f);
  RETURN_IF_ERROR(read_scaling(f));
  RETURN_IF_ERROR(read_divisors(parts, f));
  if (row->complete) row->complete(f);
  return std::move(f.config);
}

}  // namespace

StatusOr<json::object> read_gguf_config(const std::filesystem::path& path, GgufLayout& layout) {
  ASSIGN_OR_RETURN(const std::vector<GgufPart> parts, open_gguf_model(path));
  StatusOr<json::object> config = config_of(parts, layout);
  if (!config.ok()) return annotate(config.status(), parts.front().path.string());
  return config;
}

}  // namespace nereid::models
