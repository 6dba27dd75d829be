// Reads config.json and headers of weights; see model_facts.h.
#include "front/openai/model_facts.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/gguf.h"
#include "base/json.h"
#include "base/json_members.h"
#include "base/mapped_file.h"
#include "io/safetensors.h"

namespace nereid::front {
namespace {

namespace fs = std::filesystem;

int64_t count_of(const json::object& object, std::string_view key) {
  const json::value& value = member_or_null(object, key);
  boost::system::error_code error;
  const int64_t count = value.is_number() ? value.to_number<int64_t>(error) : 0;
  return error ? 0 : std::max<int64_t>(0, count);
}

std::string in_capitals(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  });
  return text;
}

// Elements of a tensor; 0 on overflow.
int64_t elements_of(const std::vector<int64_t>& shape) {
  double product = 1;
  for (const int64_t size : shape) product *= static_cast<double>(size);
  return product >= 0 && product < 1e15 ? static_cast<int64_t>(product) : 0;
}

std::string quantization_of(const json::object& config) {
  const json::value& own = member_or_null(config, "quantization_config");
  if (own.is_object()) return in_capitals(text_member(own, "quant_method"));
  const std::string type = text_member(config, config.contains("dtype") ? "dtype" : "torch_dtype");
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"bfloat16", "BF16"}, {"float16", "F16"}, {"float32", "F32"}};
  for (const auto& [name, short_name] : kNames)
    if (type == name) return std::string(short_name);
  return "";
}

// Reads a config.json; a multimodal model has a nested text configuration.
void read_config(const json::object& root, ModelFacts& out) {
  const json::value& inner = member_or_null(root, "text_config");
  const json::object& config = inner.is_object() ? inner.get_object() : root;
  out.architecture = text_member(root, "model_type");
  out.num_layers = count_of(config, "num_hidden_layers");
  out.num_heads = count_of(config, "num_attention_heads");
  out.num_kv_heads = count_of(config, "num_key_value_heads");
  out.hidden_size = count_of(config, "hidden_size");
  out.quantization = quantization_of(root);
}

void read_weights(const fs::path& dir, ModelFacts& out) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto file = MappedFile::open(entry.path());
    if (!file.ok()) continue;
    const auto tensors = io::parse_safetensors(file->bytes());
    if (!tensors.ok()) continue;
    out.num_bytes += std::ssize(file->bytes());
    for (const io::StoredTensor& tensor : *tensors) out.num_parameters += elements_of(tensor.shape);
  }
}

// Source: general.file_type of docs/gguf.md of ggml-org/ggml, and llama.cpp's LLAMA_FTYPE_*.
std::string gguf_quantization(int64_t file_type) {
  constexpr std::string_view kNames[] = {
      "F32",  "F16",    "Q4_0",   "Q4_1",   "",       "",       "",       "Q8_0",   "Q5_0", "Q5_1",
      "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K"};
  const auto index = static_cast<size_t>(file_type);
  return file_type == 32 ? "BF16" : std::string(index < std::size(kNames) ? kNames[index] : "");
}

ModelFacts gguf_facts(const fs::path& path) {
  ModelFacts out = {.format = "gguf"};
  const auto file = MappedFile::open(path);
  if (!file.ok()) return out;
  const auto gguf = parse_gguf(file->bytes());
  if (!gguf.ok()) return out;
  const json::object& all = gguf->metadata;
  out.architecture = text_member(all, "general.architecture");
  const auto count = [&](std::string_view key) {
    return count_of(all, out.architecture + "." + std::string(key));
  };
  out.num_layers = count("block_count");
  out.num_heads = count("attention.head_count");
  out.num_kv_heads = count("attention.head_count_kv");
  out.hidden_size = count("embedding_length");
  if (all.contains("general.file_type"))
    out.quantization = gguf_quantization(count_of(all, "general.file_type"));
  for (const GgufTensor& tensor : gguf->tensors) out.num_parameters += elements_of(tensor.shape);
  out.num_bytes = std::ssize(file->bytes());
  return out;
}

}  // namespace

ModelFacts read_model_facts(const fs::path& path) {
  if (is_gguf_path(path)) return gguf_facts(path);
  ModelFacts out = {.format = "safetensors"};
  const auto config = read_json_file(path / "config.json");
  if (config.ok() && config->is_object()) read_config(config->get_object(), out);
  read_weights(path, out);
  return out;
}

}  // namespace nereid::front
