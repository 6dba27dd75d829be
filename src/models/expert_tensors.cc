#include "models/expert_tensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "io/quantized_tensors.h"

namespace nereid::models {
namespace {

// (name part in files, transformers 5's name in memory).
constexpr std::pair<std::string_view, std::string_view> kHeld[] = {
    {".block_sparse_moe.", ".mlp."},
    {".block_sparse_moe.gate.", ".block_sparse_moe.router."},
    {".block_sparse_moe.router.layer.", ".block_sparse_moe.router."},
    {".block_sparse_moe.input_linear.weight", ".block_sparse_moe.experts.gate_up_proj"},
    {".block_sparse_moe.output_linear.weight", ".block_sparse_moe.experts.down_proj"},
    {".mlp.moe_statics.", ".mlp.gate.moe_statics."},
    {".mlp.e_score_correction_bias", ".mlp.gate.e_score_correction_bias"},
    {"embed_out.", "lm_head."}};
constexpr std::string_view kFirstExpert = ".experts.0.";

// Renames tensors to the names in the graph, if none of these is present.
Status rename_held(const graph::Graph& graph, io::Checkpoint& checkpoint) {
  for (const auto& [stored, held] : kHeld) {
    const auto is_stored = [&](std::string_view tensor) {
      return tensor.find(stored) != tensor.npos;
    };
    const bool wanted = std::ranges::any_of(graph.weights, [&](const graph::Weight& w) {
      return !w.parts.empty() && is_stored(w.parts[0].tensor);
    });
    const bool has = std::ranges::any_of(
        checkpoint.entries(), [&](const auto& entry) { return is_stored(entry.tensor->name); });
    if (!wanted || has) continue;
    RETURN_IF_ERROR(checkpoint.rename([&](std::string name) {
      const size_t at = name.find(held);
      return at == name.npos ? name : name.replace(at, held.size(), stored);
    }));
  }
  return ok();
}

// Whether a layer's expert matrices (`size` x `hidden`) are transposed. Square ones are ambiguous,
// then the other tensor decides.
bool are_transposed(const io::Checkpoint& checkpoint, const std::string& experts, int64_t size,
                    int64_t hidden) {
  const io::Checkpoint::Entry* const down = checkpoint.find(experts + "down_proj");
  const io::Checkpoint::Entry* const both = checkpoint.find(experts + "gate_up_proj");
  const auto dim = [](const io::Checkpoint::Entry* entry) {
    return entry && entry->tensor->shape.size() == 3 ? entry->tensor->shape[1] : 0;
  };
  return size == hidden ? dim(both) == hidden : dim(down) == size;
}

}  // namespace

bool is_stacked(const graph::Weight& weight) {
  return weight.experts > 1 && weight.parts[0].stacked == weight.experts;
}

std::string apart_name(const graph::Weight& weight, int64_t part) {
  const std::string& tensor = weight.parts[static_cast<size_t>(part)].tensor;
  if (!is_stacked(weight)) return tensor;
  constexpr std::string_view kBiasEnd = ".bias", kWeightEnd = ".weight";
  std::string_view name = weight.name;
  const bool is_bias = name.ends_with(kBiasEnd);
  if (is_bias) name.remove_suffix(kBiasEnd.size());
  return fmt::format("{}.{}.{}_proj{}", std::string_view(tensor).substr(0, tensor.rfind('.')), part,
                     name.substr(name.rfind('.') + 1), is_bias ? kBiasEnd : kWeightEnd);
}

void set_experts_apart(graph::Graph& graph) {
  for (graph::Weight& weight : graph.weights) {
    if (!is_stacked(weight)) continue;
    std::vector<graph::WeightPart> parts;
    for (size_t e = 0; e < weight.parts.size(); ++e)
      parts.push_back(
          {.tensor = apart_name(weight, static_cast<int64_t>(e)), .size = weight.parts[e].size});
    weight.parts = std::move(parts);
  }
}

Status divide_experts(const graph::Graph& graph, io::Checkpoint& checkpoint) {
  RETURN_IF_ERROR(rename_held(graph, checkpoint));
  std::vector<io::Checkpoint::Joined> divided;
  for (const graph::Weight& weight : graph.weights) {
    if (weight.parts.empty()) continue;
    const std::string& first = weight.parts[0].tensor;
    const size_t at = first.find(kFirstExpert);
    if (at == std::string::npos || checkpoint.find(first)) continue;
    const std::string experts = first.substr(0, at) + ".experts.";
    const bool is_down = weight.name.ends_with(".down"), is_up = weight.name.ends_with(".up");
    const std::string stack = experts + (is_down ? "down_proj" : "gate_up_proj");
    const io::Checkpoint::Entry* const entry = checkpoint.find(stack);
    if (!entry) continue;
    const int64_t size = is_down ? weight.k : weight.n, hidden = is_down ? weight.n : weight.k;
    io::StackPart part{.first = is_up ? size : 0,
                       .n = weight.n,
                       .transposed = are_transposed(checkpoint, experts, size, hidden)};
    std::vector<int64_t> wanted = {weight.experts, is_down ? hidden : 2 * size,
                                   is_down ? size : hidden};
    if (part.transposed) std::swap(wanted[1], wanted[2]);
    if (entry->tensor->shape != wanted)
      return invalid_argument("{}: tensor '{}' has shape {}, config.json asks for [{}]",
                              entry->file->path().string(), stack, entry->tensor->shape_text(),
                              fmt::join(wanted, ", "));
    for (const graph::WeightPart& expert : weight.parts) {
      StatusOr<io::StoredTensor> one = io::part_of_stack(expert.tensor, *entry->tensor, part);
      if (!one.ok()) return annotate(one.status(), entry->file->path().string());
      divided.push_back({.parts = {stack}, .whole = *std::move(one)});
      ++part.index;
    }
  }
  return divided.empty() ? ok() : checkpoint.join(std::move(divided));
}

}  // namespace nereid::models
