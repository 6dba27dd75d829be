// Tensor names of the TensorRT-LLM checkpoint layout, both ways; the fused query-key-value matrix
// is three matrices, one above the other, so reading it is cutting rows.
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "models/trtllm.h"

namespace nereid::models {
namespace {

struct Row {
  std::string_view name;
  std::vector<std::string_view> parts;
};

// `.weight` and `.bias` are appended.
const Row kModelRows[] = {{"transformer.vocab_embedding", {"model.embed_tokens"}},
                          {"transformer.ln_f", {"model.norm"}},
                          {"lm_head", {"lm_head"}}};
const Row kLayerRows[] = {
    {"input_layernorm", {"input_layernorm"}},
    {"attention.qkv", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
    {"attention.dense", {"self_attn.o_proj"}},
    {"post_layernorm", {"post_attention_layernorm"}},
    {"mlp.fc", {"mlp.gate_proj"}},  // the activated branch
    {"mlp.gate", {"mlp.up_proj"}},  // the multiplier
    {"mlp.proj", {"mlp.down_proj"}}};
constexpr std::string_view kKinds[] = {".weight", ".bias"};
constexpr std::string_view kTheirLayer = "transformer.layers.", kOurLayer = "model.layers.";

TrtLlmTensor make(const Row& row, const std::string& theirs, const std::string& ours,
                  std::string_view kind) {
  TrtLlmTensor tensor{fmt::format("{}{}{}", theirs, row.name, kind), {}};
  for (const std::string_view part : row.parts)
    tensor.parts.push_back(fmt::format("{}{}{}", ours, part, kind));
  return tensor;
}

// The row that a stored name belongs to; nothing when there is none.
std::optional<TrtLlmTensor> find_row(std::string_view name) {
  std::string theirs, ours;
  std::string_view rest = name;
  std::span<const Row> rows = kModelRows;
  if (name.starts_with(kTheirLayer)) {
    rest.remove_prefix(kTheirLayer.size());
    int32_t layer = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
    if (error != std::errc() || end == rest.data() + rest.size() || *end != '.' || layer < 0)
      return std::nullopt;
    theirs = fmt::format("{}{}.", kTheirLayer, layer);
    ours = fmt::format("{}{}.", kOurLayer, layer);
    if (!name.starts_with(theirs)) return std::nullopt;  // "007"
    rows = kLayerRows;
  }
  for (const Row& row : rows)
    for (const std::string_view kind : kKinds) {
      TrtLlmTensor tensor = make(row, theirs, ours, kind);
      if (tensor.name == name) return tensor;
    }
  return std::nullopt;
}

// Rows of each part of the fused matrix.
std::vector<int64_t> part_rows(const Traits& t) {
  const int64_t query = int64_t{t.num_heads} * t.head_dim;
  const int64_t key_value = int64_t{t.num_kv_heads} * t.head_dim;
  return {query, key_value, key_value};
}

// Constants that converters of several versions left in; their values follow from config.json.
bool is_constant(std::string_view name) {
  return name.ends_with("rotary_inv_freq") || name.ends_with("embed_positions") ||
         name.ends_with("embed_positions_for_gpt_attention") || name.ends_with("rotary_cos_sin");
}

StatusOr<std::vector<io::StoredTensor>> translate(const io::StoredTensor& stored,
                                                  const Traits& traits) {
  std::vector<io::StoredTensor> out;
  if (is_constant(stored.name)) return out;
  const std::optional<TrtLlmTensor> row = find_row(stored.name);
  if (!row)
    return invalid_argument("tensor '{}' has no place in a model of this config.json",
                            stored.name.substr(0, 200));
  if (row->parts.size() == 1) {
    out.push_back(stored);
    out[0].name = row->parts[0];
    return out;
  }
  const std::vector<int64_t> rows = part_rows(traits);
  const int64_t total = rows[0] + rows[1] + rows[2];
  if (stored.shape.empty() || stored.shape[0] != total)
    return invalid_argument("tensor '{}' has shape {}, config.json asks for {} rows", stored.name,
                            stored.shape_text(), total);
  const size_t row_bytes = stored.data.size() / static_cast<size_t>(total);
  size_t begin = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    io::StoredTensor part = stored;
    part.name = row->parts[i];
    part.shape[0] = rows[i];
    part.data = stored.data.subspan(begin, row_bytes * static_cast<size_t>(rows[i]));
    begin += part.data.size();
    out.push_back(std::move(part));
  }
  return out;
}

}  // namespace

StatusOr<io::Checkpoint> open_checkpoint(const Model& model, const std::filesystem::path& dir) {
  if (model.layout == Layout::kHuggingFace) {
    ASSIGN_OR_RETURN(io::Checkpoint checkpoint, io::Checkpoint::open(dir));
    const std::string_view prefix = model.family->optional_prefix;
    const auto& entries = checkpoint.entries();
    const bool lacks_it = std::none_of(entries.begin(), entries.end(), [&](const auto& entry) {
      return entry.tensor->name.starts_with(prefix);
    });
    if (lacks_it) checkpoint.add_prefix(prefix);
    return checkpoint;
  }
  const std::filesystem::path path = dir / kRank0Tensors;
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return not_found("{}: is missing; config.json says that this is a TensorRT-LLM checkpoint",
                     path.string());
  return io::Checkpoint::open_file(
      path, [&](const io::StoredTensor& stored) { return translate(stored, model.traits); });
}

StatusOr<std::vector<TrtLlmTensor>> trtllm_tensors(const Model& model) {
  std::set<std::string_view> wanted;
  for (const graph::Weight& weight : model.graph.weights)
    for (const graph::WeightPart& part : weight.parts) wanted.insert(part.tensor);
  std::vector<TrtLlmTensor> out;
  const auto add = [&](const Row& row, const std::string& theirs, const std::string& ours) {
    for (const std::string_view kind : kKinds) {
      TrtLlmTensor tensor = make(row, theirs, ours, kind);
      if (!wanted.contains(tensor.parts[0])) continue;
      for (const std::string& part : tensor.parts) wanted.erase(part);
      out.push_back(std::move(tensor));
    }
  };
  for (const Row& row : kModelRows) add(row, "", "");
  for (int32_t i = 0; i < model.traits.num_layers; ++i)
    for (const Row& row : kLayerRows)
      add(row, fmt::format("{}{}.", kTheirLayer, i), fmt::format("{}{}.", kOurLayer, i));
  if (!wanted.empty())
    return internal_error("no TensorRT-LLM name for {}", fmt::join(wanted, ", "));
  return out;
}

}  // namespace nereid::models
