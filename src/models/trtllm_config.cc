// config.json of the TensorRT-LLM checkpoint layout, both ways.
#include <array>
#include <string>
#include <utility>

#include "io/safetensors.h"
#include "models/trtllm.h"

namespace nereid::models {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kFieldNames = {{
    {"rms_norm_eps", "norm_epsilon"},
    {"head_dim", "head_size"},
    {"rope_theta", "rotary_base"},
    {"rope_scaling", "rotary_scaling"},
    {"attention_bias", "attn_bias"},
    {"quantization_config", "quantization_config"},
}};

// Fields that change the computation and must have one value, or be absent.
struct Only {
  std::string_view field;
  json::value value;
};

Status check_mapping(const json::object& config, const std::string& where) {
  Config outer(config, where);
  const json::object* mapping = outer.object("mapping");
  RETURN_IF_ERROR(outer.status());
  if (!mapping) return ok();
  Config inner(*mapping, where + ": mapping");
  for (const std::string_view field : {"world_size", "tp_size", "pp_size", "cp_size"}) {
    const int32_t size = inner.integer(field, 1, 1 << 20, 1);
    if (inner.status().ok() && size != 1)
      inner.fail(field, fmt::format("{} ranks; checkpoints of several ranks are not supported yet, "
                                    "allowed is 1",
                                    size));
  }
  return inner.status();
}

Status check_quantization(const json::object& config, const std::string& where) {
  Config outer(config, where);
  const json::object* quantization = outer.object("quantization");
  RETURN_IF_ERROR(outer.status());
  if (!quantization) return ok();
  Config inner(*quantization, where + ": quantization");
  for (const std::string_view field : {"quant_algo", "kv_cache_quant_algo"}) {
    const std::string algorithm = inner.string(field, "NO_QUANT");
    if (algorithm != "NO_QUANT")
      inner.fail(field, fmt::format("'{}': quantised checkpoints are not supported yet, allowed "
                                    "are null and NO_QUANT",
                                    algorithm.substr(0, 40)));
  }
  return inner.status();
}

Status check_variants(const json::object& config, const std::string& where) {
  Config c(config, where);
  const Only kOnly[] = {{"qk_layernorm", false},
                        {"residual_mlp", false},
                        {"fc_after_embed", false},
                        {"use_input_layernorm_in_first_layer", true},
                        {"use_last_layernorm", true},
                        {"layer_idx_offset", 0},
                        {"moe_num_experts", 0},
                        {"embedding_multiplier", 1.0},
                        {"attention_multiplier", 1.0},
                        {"residual_multiplier", 1.0},
                        {"output_multiplier_scale", 1.0},
                        {"rotary_pct", 1.0},
                        {"is_pruned", false}};
  for (const Only& only : kOnly) c.require(only.field, only.value);
  if (const json::object* moe = c.object("moe")) {
    Config inner(*moe, where + ": moe");
    inner.require("num_experts", 0);
    RETURN_IF_ERROR(inner.status());
  }
  const std::string type = c.string("position_embedding_type", "learned_absolute");
  if (type != "rope_gpt_neox" && type != "yarn")
    c.fail("position_embedding_type",
           fmt::format("'{}' is not one of rope_gpt_neox, yarn", type.substr(0, 40)));
  const std::string dtype = c.string("dtype");
  if (c.status().ok() && dtype != "bfloat16" && dtype != "float16" && dtype != "float32")
    c.fail("dtype",
           fmt::format("'{}' is not one of bfloat16, float16, float32", dtype.substr(0, 40)));
  return c.status();
}

void set_default(json::object& config, std::string_view field, json::value value) {
  json::value& there = config[field];
  if (there.is_null()) there = std::move(value);
}

json::value id_or_null(int32_t id) {
  return id == io::kNone ? json::value(nullptr) : json::value(id);
}

json::value rope_scaling(const RopeTraits& rope) {
  if (rope.scaling == RopeScaling::kNone) return nullptr;
  const char* type = rope.scaling == RopeScaling::kLinear   ? "linear"
                     : rope.scaling == RopeScaling::kLlama3 ? "llama3"
                                                            : "yarn";
  json::object out = {{"type", type}, {"rope_type", type}, {"factor", rope.factor}};
  if (rope.scaling == RopeScaling::kLinear) return out;
  out["original_max_position_embeddings"] = static_cast<int64_t>(rope.original_positions);
  if (rope.scaling == RopeScaling::kLlama3) {
    out["low_freq_factor"] = rope.low_freq_factor;
    out["high_freq_factor"] = rope.high_freq_factor;
    return out;
  }
  out["beta_fast"] = rope.beta_fast;
  out["beta_slow"] = rope.beta_slow;
  if (rope.attention_factor) out["attention_factor"] = *rope.attention_factor;
  return out;
}

const char* hf_name_of(kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::kSilu:
      return "silu";
    case kernels::Activation::kGelu:
      return "gelu";
    case kernels::Activation::kGeluTanh:
      return "gelu_pytorch_tanh";
    case kernels::Activation::kRelu:
      return "relu";
    case kernels::Activation::kRelu2:
      return "relu2";
    case kernels::Activation::kNone:  // no family of this layout has them
    case kernels::Activation::kGeluSigmoid:
      break;
  }
  return "silu";
}

json::object one_rank() {
  return {{"world_size", 1},   {"gpus_per_node", 8},    {"cp_size", 1},
          {"tp_size", 1},      {"pp_size", 1},          {"moe_tp_size", 1},
          {"moe_ep_size", 1},  {"moe_cluster_size", 1}, {"attn_tp_size", 1},
          {"attn_cp_size", 1}, {"auto_parallel", false}};
}

}  // namespace

bool is_trtllm_config(const json::object& config) {
  return config.contains("architecture") && config.contains("dtype") &&
         !config.contains("architectures");
}

Config::Names trtllm_field_names() { return kFieldNames; }

Status complete_trtllm_config(json::object& config, const std::filesystem::path& dir) {
  const std::string where = (dir / "config.json").string();
  RETURN_IF_ERROR(check_mapping(config, where));
  RETURN_IF_ERROR(check_quantization(config, where));
  RETURN_IF_ERROR(check_variants(config, where));
  Config c(config, where);
  std::string architecture = c.string("architecture");
  const int32_t heads = c.integer("num_attention_heads", 1, 1 << 20);
  const int32_t hidden = c.integer("hidden_size", 1, 1 << 24);
  RETURN_IF_ERROR(c.status());
  if (architecture == "LLaMAForCausalLM") architecture = "LlamaForCausalLM";
  config["architectures"] = json::array{json::value(architecture)};
  set_default(config, "norm_epsilon", 1e-5);
  set_default(config, "hidden_act", "gelu");
  set_default(config, "max_position_embeddings", 2048);
  set_default(config, "num_key_value_heads", heads);
  set_default(config, "intermediate_size", 4 * int64_t{hidden});
  config["sliding_window"];  // absent means none here, whatever it means to the family elsewhere
  std::error_code error;
  const std::filesystem::path tensors = dir / kRank0Tensors;
  if (!std::filesystem::exists(tensors, error)) return ok();  // random weights, or refused later
  ASSIGN_OR_RETURN(const io::SafetensorsFile file, io::SafetensorsFile::open(tensors));
  bool has_head = false;
  for (const io::StoredTensor& tensor : file.tensors()) has_head |= tensor.name == "lm_head.weight";
  if (!has_head) config["tie_word_embeddings"] = true;
  return ok();
}

json::object trtllm_config(const Model& model, std::string_view dtype) {
  const Traits& t = model.traits;
  const io::ModelFacts& facts = model.graph.model;
  json::object config;
  config["architecture"] = std::string(facts.architecture);
  config["dtype"] = std::string(dtype);
  config["logits_dtype"] = "float32";
  config["vocab_size"] = t.vocab_size;
  config["max_position_embeddings"] = t.max_positions;
  config["hidden_size"] = t.hidden_size;
  config["num_hidden_layers"] = t.num_layers;
  config["num_attention_heads"] = t.num_heads;
  config["num_key_value_heads"] = t.num_kv_heads;
  config["head_size"] = t.head_dim;
  config["qk_layernorm"] = false;
  config["intermediate_size"] = t.intermediate_size;
  config["hidden_act"] = hf_name_of(t.activation);
  config["norm_epsilon"] = std::stod(fmt::format("{}", t.norm_eps));
  config["position_embedding_type"] = "rope_gpt_neox";
  config["rotary_base"] = t.ropes[0].theta;
  config["rotary_scaling"] = rope_scaling(t.ropes[0]);
  config["rotary_embedding_dim"] = t.head_dim;
  config["use_parallel_embedding"] = false;
  config["embedding_sharding_dim"] = 0;
  config["mapping"] = one_rank();
  config["quantization"] = json::object{{"quant_algo", nullptr}, {"kv_cache_quant_algo", nullptr}};
  config["attn_bias"] = t.qkv_bias;
  config["mlp_bias"] = t.mlp_bias;
  config["tie_word_embeddings"] = t.tied_embedding;
  config["residual_mlp"] = false;
  config["sliding_window"] =
      t.sliding_window > 0 ? json::value(t.sliding_window) : json::value(nullptr);
  config["bos_token_id"] = id_or_null(facts.bos_id);
  config["pad_token_id"] = id_or_null(facts.pad_id);
  config["eos_token_id"] = json::value_from(facts.end_ids);
  return config;
}

}  // namespace nereid::models
