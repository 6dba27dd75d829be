#include "models/expert_tensors.h"

#include <string_view>

namespace nereid::models {

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

}  // namespace nereid::models
