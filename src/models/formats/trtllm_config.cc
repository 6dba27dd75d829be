// config.json of the TensorRT-LLM layout, reading and writing.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include <fmt/ranges.h>

#include "io/safetensors.h"
#include "models/formats/trtllm.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kFieldNames = {{
    {"rms_norm_eps", "norm_epsilon"},
    {"layer_norm_epsilon", "norm_epsilon"},
    {"head_dim", "head_size"},
    {"rope_theta", "rotary_base"},
    {"rope_scaling", "rotary_scaling"},
    {"attention_bias", "attn_bias"},
    {"n_embd", "hidden_size"},
    {"n_layer", "num_hidden_layers"},
    {"n_head", "num_attention_heads"},
    {"n_positions", "max_position_embeddings"},
    {"n_inner", "intermediate_size"},
    {"activation_function", "hidden_act"},
    {"d_model", "hidden_size"},
    {"n_layers", "num_hidden_layers"},
    {"n_heads", "num_attention_heads"},
    {"max_seq_len", "max_position_embeddings"},
}};

// Models written as TensorRT-LLM's GPT.
using GptVariant = std::pair<std::string_view, std::string_view>;
constexpr GptVariant kGptVariants[] = {{"gpt2", "GPT2LMHeadModel"},
                                       {"starcoder", "GPTBigCodeForCausalLM"},
                                       {"starcoder2", "Starcoder2ForCausalLM"},
                                       {"nemotron", "NemotronForCausalLM"}};

// Hugging Face fields without influence on the model, or with another name here.
constexpr std::string_view kDropped[] = {"architectures",
                                         "model_type",
                                         "torch_dtype",
                                         "dtype",
                                         "transformers_version",
                                         "_name_or_path",
                                         "auto_map",
                                         "use_cache",
                                         "bos_token_id",
                                         "pad_token_id",
                                         "quantization_config",
                                         "compression_config",
                                         "eos_token_id"};

// Fields that this layout has for every family. The ones that a family's reader does not read are
// checked elsewhere: check_variants(), check_trtllm_config(); biases by the tensors.
constexpr std::string_view kOfAllFamilies[] = {"attention_bias",
                                               "mlp_bias",
                                               "bias",
                                               "qk_layernorm",
                                               "num_experts",
                                               "num_local_experts",
                                               "attention_multiplier",
                                               "embedding_multiplier",
                                               "residual_multiplier"};

// Fields that change the computation and must have this value, or be absent.
struct Only {
  std::string_view field;
  json::value value;
};

Status check_variants(const json::object& config, const std::string& where) {
  Config c(config, where);
  const Only kOnly[] = {{"residual_mlp", false},
                        {"fc_after_embed", false},
                        {"use_input_layernorm_in_first_layer", true},
                        {"use_last_layernorm", true},
                        {"layer_idx_offset", 0},
                        {"output_multiplier_scale", 1.0},
                        {"q_scaling", 1.0}};
  for (const Only& only : kOnly) c.require(only.field, only.value);
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

// `normalization_mode` of experts.
constexpr int32_t kRenormalise = 1, kGroups = 3, kRenormaliseGroups = 4;

int32_t normalization_mode(const Traits& t) {
  if (t.expert_groups <= 1) return t.renormalise_experts ? kRenormalise : 0;
  const bool by_softmax = t.expert_scoring == kernels::Scoring::kSoftmax;
  return by_softmax && t.renormalise_experts ? kRenormaliseGroups : kGroups;
}

// Renames expert fields to the families' own names.
void complete_experts(json::object& config) {
  const json::value* moe = config.if_contains("moe");
  if (!moe || !moe->is_object()) return;
  const auto copy = [&](std::string_view from, std::string_view to) {
    if (const json::value* value = moe->get_object().if_contains(from))
      set_default(config, to, *value);
  };
  copy("num_experts", "num_local_experts");
  copy("num_experts", "num_experts");
  copy("top_k", "num_experts_per_tok");
  if (const json::value* mode = moe->get_object().if_contains("normalization_mode"))
    set_default(config, "norm_topk_prob", *mode == json::value(1));
}

// Renames MLA fields to the families' own names. Source: DeepSeekV2Config, MoeConfig.
Status complete_latent(json::object& config, const std::string& where, int32_t heads) {
  if (!config.contains("kv_lora_rank")) return ok();
  // The cache has one key per token.
  if (config["num_key_value_heads"] == json::value(1)) config["num_key_value_heads"] = heads;
  const json::object outer = config;
  const auto copy = [&](const json::object& from, std::string_view theirs, std::string_view ours) {
    if (const json::value* value = from.if_contains(theirs)) set_default(config, ours, *value);
  };
  copy(outer, "moe_inter_size", "moe_intermediate_size");
  copy(outer, "coring_func", "scoring_func");
  Config c(config, where);
  const json::object* found = c.object("moe");
  if (!found) return c.status();
  const json::object moe = *found;
  copy(moe, "num_experts", "n_routed_experts");
  copy(moe, "device_limited_n_group", "n_group");
  copy(moe, "device_limited_topk_group", "topk_group");
  copy(moe, "device_limited_routed_scaling_factor", "routed_scaling_factor");
  Config experts(moe, where + ": moe");
  const int32_t mode = experts.integer("normalization_mode", 0, kRenormaliseGroups, 0);
  const std::string method =
      c.string("topk_method",
               mode == kGroups || mode == kRenormaliseGroups ? "group_limited_greedy" : "greedy");
  const int32_t width = c.integer("moe_intermediate_size", 1, 1 << 30, 1);
  const int32_t shared = experts.integer("shared_expert_intermediate_size", 0, 1 << 30, 0);
  if (shared % width != 0)
    experts.fail("shared_expert_intermediate_size",
                 fmt::format("{} is not a multiple of moe_inter_size {}", shared, width));
  c.add(experts.status());
  set_default(config, "topk_method", json::value(std::string_view(method)));
  set_default(config, "norm_topk_prob",
              method == "noaux_tc" || mode == kRenormalise || mode == kRenormaliseGroups);
  if (experts.has("shared_expert_intermediate_size"))
    set_default(config, "n_shared_experts", shared / width);
  return c.status();
}

// Aliases of architectures.
std::string usual_architecture(Config& c) {
  const std::string name = c.string("architecture");
  if (name == "LLaMAForCausalLM") return "LlamaForCausalLM";
  if (name == "RWForCausalLM") return "FalconForCausalLM";
  if (name != "GPTForCausalLM") return name;
  const std::string variant = c.string("gpt_variant", "gpt2");
  const std::string_view found = architecture_of_gpt(variant);
  if (!found.empty()) return std::string(found);
  c.fail("gpt_variant",
         fmt::format("'{}' is not one of {}", variant.substr(0, 40), gpt_variants()));
  return name;
}

// MPT's own files nest these fields.
void complete_mpt(json::object& config) {
  json::object attention = {{"alibi", true}};
  if (const json::value* own = config.if_contains("attn_config"); own && own->is_object())
    attention = own->get_object();
  for (const std::string_view key : {"alibi_bias_max", "clip_qkv"})
    if (const json::value* value = config.if_contains(key)) attention[key] = *value;
  config.erase("clip_qkv");
  config["attn_config"] = std::move(attention);
}

// Field names of Falcon's own files, where the number of KV heads is implicit.
void complete_falcon(json::object& config) {
  const json::value kv_heads = config["num_key_value_heads"];
  const json::value* parallel = config.if_contains("parallel_attention");
  set_default(config, "parallel_attn", parallel ? *parallel : json::value(false));
  set_default(config, "ffn_hidden_size", json::value(config["intermediate_size"]));
  set_default(config, "activation", json::value(config["hidden_act"]));
  set_default(config, "num_kv_heads", kv_heads);
  set_default(config, "multi_query", kv_heads == json::value(1));
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
    case kernels::Activation::kNone:  // none in this layout
    case kernels::Activation::kGeluSigmoid:
      break;
  }
  return "silu";
}

bool has_weight(const graph::Graph& graph, std::string_view name) {
  return std::ranges::any_of(graph.weights,
                             [&](const graph::Weight& w) { return w.name.ends_with(name); });
}

// position_embedding_type of the graph, with accepted aliases: "rope" and "nope" are transformers'.
std::vector<std::string_view> position_types(const graph::Graph& graph) {
  if (has_weight(graph, "positions")) return {"learned_absolute"};
  if (graph.model.latent > 0) return {"rope_gpt_neox", "learned_absolute", "rope_gptj"};
  bool has_rope = false, interleaved = false, has_alibi = false, scaled_alibi = false;
  for (const graph::Node& node : graph.nodes) {
    if (const auto* rope = std::get_if<graph::Rope>(&node.op)) {
      has_rope = true;
      interleaved |= rope->interleaved;
    }
    if (const auto* attention = std::get_if<graph::Attention>(&node.op)) {
      has_alibi |= attention->alibi != 0;
      scaled_alibi |= attention->alibi_scale != 1;
    }
  }
  if (interleaved) return {"rope_gptj"};
  if (!has_rope && !has_alibi)
    return {graph.model.ropes.empty() ? "alibi" : "rope_gpt_neox", "nope"};
  if (has_rope) return {"rope_gpt_neox", "yarn", "long_rope", "rope"};
  if (scaled_alibi) return {"alibi_with_scale"};
  return {"alibi", "alibi_with_scale"};
}

// The model's own fields under this layout's names.
json::object renamed(const json::object& own) {
  json::object out;
  for (const auto& [key, value] : own) {
    if (std::ranges::find(kDropped, std::string_view(key)) != std::end(kDropped)) continue;
    std::string_view name = key;
    for (const auto& [theirs, ours] : kFieldNames)
      if (key == theirs) name = ours;
    out[name] = value;
  }
  // A single rope table, as newer files write it.
  if (const json::value* rope = out.if_contains("rope_parameters");
      rope && rope->is_object() && rope->get_object().contains("rope_theta")) {
    const json::object inner = rope->get_object();
    out["rotary_base"] = inner.at("rope_theta");
    const json::value* type = inner.if_contains("rope_type");
    if (type && *type != json::value("default")) out["rotary_scaling"] = inner;
    out.erase("rope_parameters");
  }
  return out;
}

// Fields required by TensorRT-LLM's readers, from the traits.
json::object standard_fields(const Model& model) {
  const Traits& t = model.traits;
  const io::ModelFacts& facts = model.graph.model;
  json::object config = {{"vocab_size", t.vocab_size},
                         {"max_position_embeddings", t.max_positions},
                         {"hidden_size", t.hidden_size},
                         {"num_hidden_layers", t.num_layers},
                         {"num_attention_heads", t.num_heads},
                         {"num_key_value_heads", t.num_kv_heads},
                         {"head_size", facts.head_dim},
                         {"qk_layernorm", has_weight(model.graph, "attn.q.norm")},
                         {"intermediate_size", t.intermediate_size},
                         {"hidden_act", hf_name_of(t.activation)},
                         {"norm_epsilon", std::stod(fmt::format("{}", t.norm_eps))},
                         {"position_embedding_type", position_types(model.graph).front()}};
  if (!t.ropes.empty()) {
    config["rotary_base"] = t.ropes[0].theta;
    config["rotary_scaling"] = nullptr;
    config["rotary_embedding_dim"] =
        static_cast<int64_t>(2 * facts.ropes[0].inverse_frequencies.size());
  }
  if (t.num_experts > 0)
    config["moe"] = {{"num_experts", t.num_experts},
                     {"top_k", t.experts_per_token},
                     {"normalization_mode", normalization_mode(t)}};
  if (t.latent > 0 && t.num_experts > 0) {
    config["moe_inter_size"] = t.expert_intermediate_size;
    json::object& moe = config["moe"].as_object();
    moe["shared_expert_intermediate_size"] = t.shared_intermediate_size;
    moe["device_limited_n_group"] = t.expert_groups;
    moe["device_limited_topk_group"] = t.expert_groups_kept;
    moe["device_limited_routed_scaling_factor"] = std::stod(fmt::format("{}", t.expert_scale));
  }
  if (t.qkv_limit > 0) config["clip_qkv"] = t.qkv_limit;
  if (t.alibi > 0 && t.alibi != 8) config["alibi_bias_max"] = t.alibi;
  if (facts.architecture == "FalconForCausalLM") {
    config["bias"] = t.qkv_bias;
    config["parallel_attention"] = t.parallel;
  }
  config["attn_bias"] = t.qkv_bias;
  config["mlp_bias"] = t.mlp_bias;
  config["tie_word_embeddings"] = t.tied_embedding;
  config["residual_mlp"] = false;
  config["sliding_window"] =
      t.sliding_window > 0 ? json::value(t.sliding_window) : json::value(nullptr);
  return config;
}

}  // namespace

json::value id_or_null(int32_t id) {
  return id == io::kNone ? json::value(nullptr) : json::value(id);
}

json::object mapping_of(const Ranks& ranks) {
  return {{"world_size", ranks.num_files()},
          {"gpus_per_node", 8},
          {"cp_size", 1},
          {"tp_size", ranks.tp},
          {"pp_size", ranks.pp},
          {"moe_tp_size", ranks.moe_tp},
          {"moe_ep_size", ranks.moe_ep},
          {"moe_cluster_size", 1},
          {"attn_tp_size", ranks.tp},
          {"attn_cp_size", 1},
          {"auto_parallel", false}};
}

std::string_view architecture_of_gpt(std::string_view variant) {
  const auto* row = std::ranges::find(kGptVariants, variant, &GptVariant::first);
  return row == std::end(kGptVariants) ? "" : row->second;
}

std::string gpt_variants() {
  std::string names;
  for (const auto& [variant, architecture] : kGptVariants)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", variant);
  return names;
}

bool is_trtllm_config(const json::object& config) {
  return config.contains("architecture") && config.contains("dtype") &&
         !config.contains("architectures");
}

Status complete_trtllm_config(json::object& config, const std::string& where) {
  RETURN_IF_ERROR(read_trtllm_quantization(config, where).status());
  RETURN_IF_ERROR(check_variants(config, where));
  Config c(config, where);
  const std::string architecture = usual_architecture(c);
  const int32_t heads = c.integer("num_attention_heads", 1, 1 << 20);
  const int32_t hidden = c.integer("hidden_size", 1, 1 << 24);
  RETURN_IF_ERROR(c.status());
  if (architecture == "MptForCausalLM" || architecture == "MPTForCausalLM") complete_mpt(config);
  config["architectures"] = json::array{json::value(architecture)};
  set_default(config, "norm_epsilon", 1e-5);
  set_default(config, "hidden_act", "gelu");
  if (config["hidden_act"] == json::value("swiglu")) config["hidden_act"] = "silu";
  if (config["hidden_act"] == json::value("geglu")) config["hidden_act"] = "gelu";
  set_default(config, "max_position_embeddings", 2048);
  set_default(config, "num_key_value_heads", heads);
  set_default(config, "intermediate_size", 4 * int64_t{hidden});
  if (architecture == "FalconForCausalLM") complete_falcon(config);
  RETURN_IF_ERROR(complete_latent(config, where, heads));
  complete_experts(config);
  config["sliding_window"];  // absent: no window in this layout
  return ok();
}

StatusOr<Traits> read_trtllm_traits(const json::object& config, const std::string& where,
                                    const Family& family) {
  json::object fields = config;
  Config reader(fields, where, kFieldNames);
  Traits traits = family.read_traits(reader);
  for (const std::string_view field : kOfAllFamilies) {
    if (reader.was_read(field)) continue;
    if (field.ends_with("_multiplier")) reader.require(field, 1.0);
    fields.erase(field == "attention_bias" ? "attn_bias" : field);
  }
  refuse_unread(reader);
  RETURN_IF_ERROR(reader.status());
  return traits;
}

bool is_pruned(const json::object& config) {
  const json::value* field = config.if_contains("is_pruned");
  return field && field->is_bool() && field->get_bool();
}

Status find_trtllm_head(json::object& config, const std::filesystem::path& last_stage) {
  if (is_pruned(config)) return ok();  // missing tensors do not matter
  std::error_code error;
  if (!std::filesystem::exists(last_stage, error)) return ok();  // random weights, or refused later
  ASSIGN_OR_RETURN(const io::TensorFile file, io::TensorFile::open(last_stage));
  const bool has_head = std::ranges::any_of(
      file.tensors(), [](const io::StoredTensor& t) { return t.name == "lm_head.weight"; });
  if (!has_head) config["tie_word_embeddings"] = true;
  set_default(config, "tie_word_embeddings", false);
  return ok();
}

Status check_trtllm_config(const json::object& config, const std::string& where,
                           const Model& model) {
  Config c(config, where);
  const std::vector<std::string_view> types = position_types(model.graph);
  const std::string type = c.string("position_embedding_type", "learned_absolute");
  if (std::ranges::find(types, type) == types.end())
    c.fail("position_embedding_type",
           fmt::format("'{}' is not one of {}", type.substr(0, 40), fmt::join(types, ", ")));
  c.require("qk_layernorm", has_weight(model.graph, "attn.q.norm"));
  c.require("moe_num_experts", model.traits.num_experts);
  c.inside("moe", [&](Config& moe) {
    moe.require("num_experts", model.traits.num_experts);
    if (model.traits.num_experts > 0) moe.require("top_k", model.traits.experts_per_token);
  });
  return c.status();
}

Status check_same_traits(std::string_view architecture, const Traits& own, const Traits& read) {
  if (read == own) return ok();
  const std::string ours = print(own), theirs = print(read);
  const auto [a, b] = std::ranges::mismatch(ours, theirs);
  const auto line = [](const std::string& text, auto at) {
    const auto position = static_cast<size_t>(at - text.begin());
    const size_t begin = text.rfind('\n', position > 0 ? position - 1 : 0) + 1;
    return text.substr(begin, std::min(text.find('\n', begin), text.size()) - begin);
  };
  return unsupported(
      "architecture '{}': cannot be written in the TensorRT-LLM layout: {} would become {}",
      architecture, line(ours, a), line(theirs, b));
}

StatusOr<json::object> trtllm_config(const Model& model, std::string_view dtype,
                                     const Ranks& ranks) {
  const io::ModelFacts& facts = model.graph.model;
  json::object own = model.layout == Layout::kTrtLlm ? model.config : renamed(model.config);
  json::object config = {
      {"architecture", facts.architecture}, {"dtype", dtype}, {"logits_dtype", "float32"}};
  if (facts.latent > 0)  // the cache's heads
    for (const char* key : {"num_key_value_heads", "head_size"}) own.erase(key);
  for (const auto& [key, value] : standard_fields(model)) {
    const json::value* there = own.if_contains(key);
    config[key] = there && !there->is_null() ? *there : value;
  }
  config["tie_word_embeddings"] = model.traits.tied_embedding;
  config["use_parallel_embedding"] = ranks.parallel_embedding;
  config["embedding_sharding_dim"] = ranks.embedding_dim;
  config["mapping"] = mapping_of(ranks);
  config["quantization"] = json::object{{"quant_algo", nullptr}, {"kv_cache_quant_algo", nullptr}};
  config["bos_token_id"] = id_or_null(facts.bos_id);
  config["pad_token_id"] = id_or_null(facts.pad_id);
  config["eos_token_id"] = json::value_from(facts.end_ids);
  for (const auto& [key, value] : own)
    if (!config.contains(key)) config[key] = value;
  json::object readable = config;
  const std::string where = fmt::format("architecture '{}'", model.family->architecture);
  RETURN_IF_ERROR(complete_trtllm_config(readable, where));
  ASSIGN_OR_RETURN(const Traits traits, read_trtllm_traits(readable, where, *model.family));
  RETURN_IF_ERROR(check_same_traits(model.family->architecture, model.traits, traits));
  return config;
}

}  // namespace nereid::models
