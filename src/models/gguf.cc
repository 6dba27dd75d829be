#include "models/gguf.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/gguf.h"
#include "base/mapped_file.h"
#include "models/config.h"

namespace nereid::models {
namespace {

struct KeyRow {
  std::string_view key;    // behind the architecture: "llama.block_count"
  std::string_view field;  // config.json's
};
constexpr KeyRow kDecoderKeys[] = {{"context_length", "max_position_embeddings"},
                                   {"embedding_length", "hidden_size"},
                                   {"block_count", "num_hidden_layers"},
                                   {"feed_forward_length", "intermediate_size"},
                                   {"attention.head_count", "num_attention_heads"},
                                   {"attention.head_count_kv", "num_key_value_heads"},
                                   {"attention.key_length", "head_dim"},
                                   {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                                   {"rope.freq_base", "rope_theta"},
                                   {"expert_count", "num_local_experts"},
                                   {"expert_used_count", "num_experts_per_tok"},
                                   {"vocab_size", "vocab_size"}};
constexpr KeyRow kGpt2Keys[] = {
    {"context_length", "n_positions"},  {"embedding_length", "n_embd"},
    {"block_count", "n_layer"},         {"feed_forward_length", "n_inner"},
    {"attention.head_count", "n_head"}, {"attention.layer_norm_epsilon", "layer_norm_epsilon"}};

struct ArchitectureRow {
  std::string_view name;
  const char* family;
  std::span<const KeyRow> keys;
  bool is_paired;  // the rows of queries and keys of a rotary pair lie side by side
};
const ArchitectureRow kArchitectures[] = {{"llama", "LlamaForCausalLM", kDecoderKeys, true},
                                          {"qwen2", "Qwen2ForCausalLM", kDecoderKeys, false},
                                          {"qwen3", "Qwen3ForCausalLM", kDecoderKeys, false},
                                          {"gpt2", "GPT2LMHeadModel", kGpt2Keys, false}};
constexpr const char* kPairedField = "gguf_rotary_pairs";

// The graph's weight and the tensor's word, which a layer's number comes before.
constexpr std::pair<std::string_view, std::string_view> kTensors[] = {
    {"embed", "token_embd"},     {"positions", "position_embd"}, {"norm", "output_norm"},
    {"head", "output"},          {"attn.norm", "attn_norm"},     {"attn.q", "attn_q"},
    {"attn.k", "attn_k"},        {"attn.v", "attn_v"},           {"attn.qkv", "attn_qkv"},
    {"attn.out", "attn_output"}, {"attn.q.norm", "attn_q_norm"}, {"attn.k.norm", "attn_k_norm"},
    {"mlp.norm", "ffn_norm"},    {"mlp.gate", "ffn_gate"},       {"mlp.up", "ffn_up"},
    {"mlp.down", "ffn_down"},    {"mlp.router", "ffn_gate_inp"}};

std::string tensor_name(const graph::Weight& weight) {
  std::string_view name = weight.name;
  std::string prefix;
  if (name.starts_with("layers.")) {
    name.remove_prefix(7);
    const size_t dot = name.find('.');
    prefix = fmt::format("blk.{}.", name.substr(0, dot));
    name.remove_prefix(dot + 1);
  }
  std::string_view kind = ".weight";
  if (name.ends_with(".bias")) kind = ".bias", name.remove_suffix(5);
  for (const auto& [ours, theirs] : kTensors)
    if (name == ours)
      return fmt::format("{}{}{}{}", prefix, theirs, weight.experts > 1 ? "_exps" : "", kind);
  return "";
}

// Divisors of the rotary frequencies, as long as the context is the model's.
Status read_divisors(const Gguf& gguf, std::span<const std::byte> file, json::object& config) {
  const auto it = std::ranges::find(gguf.tensors, "rope_freqs.weight", &GgufTensor::name);
  if (it == gguf.tensors.end()) return ok();
  const auto data = file.subspan(gguf.data_begin);
  const int64_t count = it->shape.size() == 1 ? it->shape[0] : 0;
  if (it->type != 0 || count < 1 || count > 1024 || it->offset > data.size() ||
      data.size() - it->offset < static_cast<uint64_t>(count) * 4)
    return invalid_argument("tensor 'rope_freqs.weight': is not 1 to 1024 numbers of F32");
  json::array divisors;
  for (int64_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, data.data() + it->offset + i * 4, 4);
    divisors.push_back(double{value});
  }
  config["rope_scaling"] = {
      {"rope_type", "longrope"},
      {"short_factor", divisors},
      {"long_factor", divisors},
      {"attention_factor", 1.0},
      {"original_max_position_embeddings", config["max_position_embeddings"]}};
  return ok();
}

Status read_scaling(const json::object& metadata, const std::string& prefix, json::object& config) {
  const json::value* type = metadata.if_contains(prefix + "rope.scaling.type");
  if (!type || *type == json::value("none")) return ok();
  const json::value* factor = metadata.if_contains(prefix + "rope.scaling.factor");
  const json::value* original =
      metadata.if_contains(prefix + "rope.scaling.original_context_length");
  if (*type != json::value("linear") && *type != json::value("yarn"))
    return unsupported("key '{}rope.scaling.type': {} is not one of none, linear, yarn", prefix,
                       json::serialize(*type).substr(0, 40));
  json::object scaling = {{"rope_type", *type}, {"factor", factor ? *factor : json::value(1.0)}};
  if (original) scaling["original_max_position_embeddings"] = *original;
  config["rope_scaling"] = std::move(scaling);
  return ok();
}

StatusOr<json::object> config_of(const Gguf& gguf, std::span<const std::byte> file) {
  Config metadata(gguf.metadata, "metadata");
  const std::string name = metadata.string("general.architecture");
  RETURN_IF_ERROR(metadata.status());
  const auto* row = std::ranges::find(kArchitectures, name, &ArchitectureRow::name);
  if (row == std::end(kArchitectures))
    return unsupported("key 'general.architecture': '{}' is not one of llama, qwen2, qwen3, gpt2",
                       name.substr(0, 40));
  json::object config;
  const std::string prefix = name + ".";
  for (const KeyRow& key : row->keys)
    if (const json::value* value = gguf.metadata.if_contains(prefix + std::string(key.key)))
      config[key.field] = *value;
  const bool has_experts =
      config.contains("num_local_experts") && config["num_local_experts"] != json::value(0);
  config["architectures"] =
      json::array{json::value(has_experts ? "MixtralForCausalLM" : row->family)};
  if (!has_experts) config.erase("num_local_experts"), config.erase("num_experts_per_tok");
  const auto find = [&](std::string_view tensor) {
    return std::ranges::find(gguf.tensors, tensor, &GgufTensor::name);
  };
  if (const auto embed = find("token_embd.weight");
      embed != gguf.tensors.end() && embed->shape.size() == 2)
    config["vocab_size"] = embed->shape[0];
  config["tie_word_embeddings"] = find("output.weight") == gguf.tensors.end();
  for (const char* id : {"bos", "eos", "padding"})
    if (const json::value* value =
            gguf.metadata.if_contains(fmt::format("tokenizer.ggml.{}_token_id", id)))
      config[fmt::format("{}_token_id", id == std::string_view("padding") ? "pad" : id)] = *value;
  if (row->is_paired) config[kPairedField] = true;
  if (row->keys.data() == kGpt2Keys) return config;
  RETURN_IF_ERROR(read_scaling(gguf.metadata, prefix, config));
  RETURN_IF_ERROR(read_divisors(gguf, file, config));
  return config;
}

}  // namespace

StatusOr<json::object> read_gguf_config(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  StatusOr<Gguf> gguf = parse_gguf(file.bytes());
  if (!gguf.ok()) return annotate(gguf.status(), path.string());
  StatusOr<json::object> config = config_of(*gguf, file.bytes());
  if (!config.ok()) return annotate(config.status(), path.string());
  return config;
}

Status use_gguf_tensors(graph::Graph& graph, const json::object& config) {
  const bool is_paired = config.contains(kPairedField);
  const auto find = [&](std::string_view name) {
    return std::ranges::find(graph.weights, name, &graph::Weight::name);
  };
  const auto head = find("head"), embed = find("embed");
  const bool tied =
      head != graph.weights.end() && embed != graph.weights.end() && head->parts == embed->parts;
  for (graph::Weight& weight : graph.weights) {
    graph::WeightPart part{.tensor = tensor_name(weight)};
    if (part.tensor.empty())
      return unsupported("weight '{}' has no name in GGUF files", weight.name);
    part.size = weight.is_vector ? weight.k : weight.experts * weight.n;
    const std::string_view name = weight.name;
    const bool turns = name.ends_with("attn.q") || name.ends_with("attn.k") ||
                       name.ends_with("attn.q.bias") || name.ends_with("attn.k.bias");
    if (is_paired && turns) part.pairs = graph.model.head_dim / 2;
    weight.parts = {std::move(part)};
  }
  if (tied) head->parts = embed->parts;
  return ok();
}

}  // namespace nereid::models
