#include "convert/quantize_selection.h"

#include <algorithm>
#include <map>
#include <set>

#include "convert/packed_tensors.h"

namespace nereid::convert {
namespace {

constexpr std::string_view kWeightEnd = ".weight";

// Whether a part is whole rows of a matrix of floats, as nn.Linear has them or with its columns as
// rows.
bool is_rows(const graph::WeightPart& part, const io::Checkpoint& checkpoint) {
  const io::Checkpoint::Entry* entry = checkpoint.find(part.tensor);
  return entry && entry->tensor->type && !entry->tensor->encoding && part.stacked == 0 &&
         part.cols == 0 && part.total_cols == 0 && part.first_col == 0 && part.pairs == 0 &&
         !part.unit_rows && part.tensor.ends_with(kWeightEnd);
}

graph::WeightId head_weight(const graph::Graph& graph) {
  graph::WeightId head = graph::kNone;
  for (const graph::Node& node : graph.nodes)
    if (const auto* linear = std::get_if<graph::Linear>(&node.op)) head = linear->weight;
  return head;
}

}  // namespace

std::string_view module_of(std::string_view tensor) {
  if (tensor.ends_with(kWeightEnd)) tensor.remove_suffix(kWeightEnd.size());
  return tensor;
}

StatusOr<Selection> select(const models::Model& model, const io::Checkpoint& checkpoint,
                           const QuantizeOptions& options) {
  const graph::Graph& graph = model.graph;
  std::map<std::string_view, std::vector<graph::WeightId>> users;  // of a tensor
  for (size_t i = 0; i < graph.weights.size(); ++i)
    for (const graph::WeightPart& part : graph.weights[i].parts) {
      auto& ids = users[part.tensor];
      if (ids.empty() || ids.back() != static_cast<graph::WeightId>(i))
        ids.push_back(static_cast<graph::WeightId>(i));
    }
  const auto is_left = [&](const graph::WeightPart& part) {
    return std::ranges::any_of(options.exclude, [&](const std::string& pattern) {
      return matches_pattern(pattern, module_of(part.tensor));
    });
  };
  const auto fits = [&](graph::WeightId id) {
    const graph::Weight& weight = graph.weights[id];
    const kernels::WeightFormat format = options.format_of(weight.parts[0].tensor);
    return weight.experts == 1 && can_store_packed(format, weight.k) &&
           std::ranges::all_of(weight.parts, [&](const graph::WeightPart& part) {
             return is_rows(part, checkpoint) && !is_left(part) &&
                    options.format_of(part.tensor) == format;
           });
  };
  // A tensor is rounded whole: all its weights, by products of one input.
  const auto all_products = product_inputs(graph, [](graph::WeightId) { return true; });
  std::set<graph::WeightId> chosen;
  for (const ProductInput& input : all_products)
    for (const graph::WeightId id : input.weights) {
      const bool whole =
          std::ranges::all_of(graph.weights[id].parts, [&](const graph::WeightPart& part) {
            return std::ranges::all_of(users[part.tensor], [&](graph::WeightId user) {
              return fits(user) && std::ranges::find(input.weights, user) != input.weights.end();
            });
          });
      if (whole) chosen.insert(id);
    }
  Selection out;
  std::set<std::string> rounded;
  for (const graph::Node& node : graph.nodes) {
    const auto* product = std::get_if<graph::ExpertLinear>(&node.op);
    if (!product) continue;
    const graph::Weight& weight = graph.weights[product->weight];
    const kernels::WeightFormat format = options.format_of(weight.parts[0].tensor);
    const bool all = std::ranges::all_of(weight.parts, [&](const graph::WeightPart& part) {
      return is_rows(part, checkpoint) && !part.transposed && !is_left(part) &&
             options.format_of(part.tensor) == format && users[part.tensor].size() == 1 &&
             part.size == part.tensor_rows() && part.step == 1;
    });
    if (!all || !can_store_packed(format, weight.k)) continue;
    int64_t row = 0;
    for (const graph::WeightPart& part : weight.parts) {
      out.plain.push_back({part.tensor, part.size, weight.k, format, {product->weight}, row});
      rounded.insert(part.tensor);
      row += part.size;
    }
  }
  const graph::WeightId head = head_weight(graph);
  if (options.quantize_head && head != graph::kNone && !is_left(graph.weights[head].parts[0])) {
    const bool whole = graph.weights[head].parts.size() == 1 &&
                       users[graph.weights[head].parts[0].tensor].size() == 1 &&
                       is_rows(graph.weights[head].parts[0], checkpoint) &&
                       can_store_packed(options.head_format(), graph.weights[head].k);
    if (!whole)
      return invalid_argument(
          "quantize_lm_head: the head of {} is also its embedding, or is not stored as rows of "
          "floats; leave the flag out",
          options.model_dir.string());
    const graph::Weight& weight = graph.weights[head];
    out.plain.push_back(
        {weight.parts[0].tensor, weight.n, weight.k, options.head_format(), {head}});
    rounded.insert(weight.parts[0].tensor);
  }
  out.inputs = product_inputs(graph, [&](graph::WeightId id) { return chosen.contains(id); });
  for (const ProductInput& input : out.inputs) {
    std::vector<Target>& targets = out.targets.emplace_back();
    for (const graph::WeightId id : input.weights)
      for (const graph::WeightPart& part : graph.weights[id].parts)
        if (rounded.insert(part.tensor).second)
          targets.push_back({part.tensor, part.tensor_rows(), graph.weights[id].k,
                             options.format_of(part.tensor), users[part.tensor]});
  }
  for (const graph::Node& node : graph.nodes)
    for (const graph::WeightId id : graph::matrices(node.op))
      for (const graph::WeightPart& part : graph.weights[id].parts)
        if (!rounded.contains(part.tensor) && !std::holds_alternative<graph::Embed>(node.op))
          out.left.emplace_back(module_of(part.tensor));
  std::ranges::sort(out.left);
  out.left.erase(std::unique(out.left.begin(), out.left.end()), out.left.end());
  return out;
}

kernels::WeightFormat QuantizeOptions::format_of(std::string_view tensor) const {
  const bool wide = std::ranges::any_of(int8_modules, [&](const std::string& pattern) {
    return matches_pattern(pattern, module_of(tensor));
  });
  return wide ? kernels::kInt8PerRow : format;
}

bool matches_pattern(std::string_view pattern, std::string_view name) {
  // The last star takes one more character where the rest does not match.
  size_t p = 0, n = 0, star = std::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++, taken = n;
    } else if (p < pattern.size() && (pattern[p] == name[n] || pattern[p] == '?')) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1, n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace nereid::convert
