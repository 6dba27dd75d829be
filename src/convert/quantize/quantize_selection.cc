#include "convert/quantize/quantize_selection.h"

#include <algorithm>
#include <map>
#include <set>

#include "convert/packed_tensors.h"
#include "models/expert_tensors.h"

namespace nereid::convert {
namespace {

constexpr std::string_view kWeightEnd = ".weight";

// Whether a part is whole float rows, as in nn.Linear or transposed, possibly in a stacked tensor.
bool is_rows(const graph::WeightPart& part, const io::Checkpoint& checkpoint) {
  const io::Checkpoint::Entry* entry = checkpoint.find(part.tensor);
  return entry && entry->tensor->type && !entry->tensor->encoding && part.cols == 0 &&
         part.total_cols == 0 && part.first_col == 0 && part.pairs == 0 && !part.unit_rows &&
         (part.stacked > 0 || part.tensor.ends_with(kWeightEnd));
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

namespace {

class Selector {
 public:
  Selector(const models::Model& model, const io::Checkpoint& checkpoint,
           const QuantizeOptions& options)
      : graph_(model.graph), checkpoint_(checkpoint), options_(options) {
    for (size_t i = 0; i < graph_.weights.size(); ++i)
      for (const graph::WeightPart& part : graph_.weights[i].parts) {
        auto& ids = users_[part.tensor];
        if (ids.empty() || ids.back() != static_cast<graph::WeightId>(i))
          ids.push_back(static_cast<graph::WeightId>(i));
      }
  }

  StatusOr<Selection> run() && {
    choose_products();
    for (const graph::Node& node : graph_.nodes)
      if (const auto* product = std::get_if<graph::ExpertLinear>(&node.op))
        if (fits_experts(product->weight)) chosen_.insert(product->weight);
    out_.inputs = product_inputs(
        graph_, [&](graph::WeightId id) { return chosen_.contains(id); }, options_.takes_factors());
    for (const ProductInput& input : out_.inputs) {
      std::vector<Target>& targets = out_.targets.emplace_back();
      for (const graph::WeightId id : input.weights) add_targets(input, id, targets);
    }
    if (options_.quantize_head) RETURN_IF_ERROR(choose_head());
    for (const graph::Node& node : graph_.nodes) {
      if (const auto* product = std::get_if<graph::ExpertLinear>(&node.op))
        for (const graph::WeightId id : {product->weight, product->bias}) split(id);
      if (std::holds_alternative<graph::Embed>(node.op)) continue;
      for (const graph::WeightId id : graph::matrices(node.op)) note_left(id);
    }
    std::ranges::sort(out_.left);
    out_.left.erase(std::unique(out_.left.begin(), out_.left.end()), out_.left.end());
    return std::move(out_);
  }

 private:
  bool is_left(std::string_view tensor) const {
    return std::ranges::any_of(options_.exclude, [&](const std::string& pattern) {
      return matches_pattern(pattern, module_of(tensor));
    });
  }

  bool fits(graph::WeightId id) const {
    const graph::Weight& weight = graph_.weights[id];
    const kernels::WeightFormat format = options_.format_of(weight.parts[0].tensor);
    return weight.experts == 1 && can_store_packed(format, weight.k) &&
           std::ranges::all_of(weight.parts, [&](const graph::WeightPart& part) {
             return part.stacked == 0 && is_rows(part, checkpoint_) && !is_left(part.tensor) &&
                    options_.format_of(part.tensor) == format;
           });
  }

  // Whether all experts' matrices can be rounded: an engine has one format for them.
  bool fits_experts(graph::WeightId id) const {
    const graph::Weight& weight = graph_.weights[id];
    const kernels::WeightFormat format = options_.format_of(models::apart_name(weight, 0));
    if (static_cast<int64_t>(weight.parts.size()) != weight.experts ||
        !can_store_packed(format, weight.k))
      return false;
    for (int64_t e = 0; e < weight.experts; ++e) {
      const graph::WeightPart& part = weight.parts[static_cast<size_t>(e)];
      const std::string name = models::apart_name(weight, e);
      if (!is_rows(part, checkpoint_) || part.size != weight.n || is_left(name) ||
          options_.format_of(name) != format)
        return false;
      const bool is_own = !part.transposed && users_.at(part.tensor).size() == 1 &&
                          part.size == part.tensor_rows() && part.step == 1;
      if (!models::is_stacked(weight) && !is_own) return false;
    }
    return true;
  }

  // A tensor is rounded whole: all its weights belong to products of one input.
  void choose_products() {
    for (const ProductInput& input : product_inputs(
             graph_, [](graph::WeightId) { return true; }, false))
      for (const graph::WeightId id : input.weights) {
        if (input.expert >= 0) continue;
        const bool whole =
            std::ranges::all_of(graph_.weights[id].parts, [&](const graph::WeightPart& part) {
              return std::ranges::all_of(users_.at(part.tensor), [&](graph::WeightId user) {
                return fits(user) && std::ranges::find(input.weights, user) != input.weights.end();
              });
            });
        if (whole) chosen_.insert(id);
      }
  }

  void add_targets(const ProductInput& input, graph::WeightId id, std::vector<Target>& targets) {
    const graph::Weight& weight = graph_.weights[id];
    if (input.expert >= 0) {
      const std::string name = models::apart_name(weight, input.expert);
      targets.push_back({name,
                         weight.n,
                         weight.k,
                         options_.format_of(name),
                         {id},
                         input.expert,
                         weight.parts[static_cast<size_t>(input.expert)].tensor});
      rounded_.insert(name);
      out_.replaced.insert(targets.back().source);
      return;
    }
    for (const graph::WeightPart& part : weight.parts)
      if (rounded_.insert(part.tensor).second) {
        targets.push_back({part.tensor, part.tensor_rows(), weight.k,
                           options_.format_of(part.tensor), users_.at(part.tensor), -1,
                           part.tensor});
        out_.replaced.insert(part.tensor);
      }
  }

  Status choose_head() {
    const graph::WeightId head = head_weight(graph_);
    if (head == graph::kNone || is_left(graph_.weights[head].parts[0].tensor)) return ok();
    const graph::Weight& weight = graph_.weights[head];
    const std::string& tensor = weight.parts[0].tensor;
    const bool whole = weight.parts.size() == 1 && users_.at(tensor).size() == 1 &&
                       is_rows(weight.parts[0], checkpoint_) &&
                       can_store_packed(options_.head_format(), weight.k);
    if (!whole)
      return invalid_argument(
          "quantize_lm_head: the head of {} is also its embedding, or is not stored as rows of "
          "floats; leave the flag out",
          options_.model_dir.string());
    out_.head = {tensor, weight.n, weight.k, options_.head_format(), {head}, -1, tensor};
    rounded_.insert(tensor);
    out_.replaced.insert(tensor);
    return ok();
  }

  // Splits the float rest of a stacked weight, or a whole bias: engines read one layout for all.
  void split(graph::WeightId id) {
    if (id == graph::kNone || chosen_.contains(id) || !models::is_stacked(graph_.weights[id]))
      return;
    const graph::Weight& weight = graph_.weights[id];
    for (int64_t e = 0; e < weight.experts; ++e)
      out_.split.push_back({models::apart_name(weight, e), weight.parts[0].tensor, id, e});
    out_.replaced.insert(weight.parts[0].tensor);
  }

  void note_left(graph::WeightId id) {
    const graph::Weight& weight = graph_.weights[id];
    for (size_t i = 0; i < weight.parts.size(); ++i) {
      const std::string name = models::is_stacked(weight)
                                   ? models::apart_name(weight, static_cast<int64_t>(i))
                                   : weight.parts[i].tensor;
      if (!rounded_.contains(name)) out_.left.emplace_back(module_of(name));
    }
  }

  const graph::Graph& graph_;
  const io::Checkpoint& checkpoint_;
  const QuantizeOptions& options_;
  std::map<std::string_view, std::vector<graph::WeightId>> users_;  // by tensor
  std::set<graph::WeightId> chosen_;
  std::set<std::string> rounded_;
  Selection out_;
};

}  // namespace

std::set<std::string, std::less<>> tensors_with_more_bits(const graph::Graph& graph) {
  std::map<std::string_view, int64_t> users;
  for (const graph::Weight& weight : graph.weights)
    for (const graph::WeightPart& part : weight.parts) ++users[part.tensor];
  std::set<std::string, std::less<>> tensors;
  for (const graph::Weight& weight : graph.weights) {
    const std::string_view name = weight.name;
    if (!name.ends_with("attn.v") && !name.ends_with("mlp.down") &&
        !name.ends_with("mlp.shared.down"))
      continue;
    for (size_t i = 0; i < weight.parts.size(); ++i)
      if (models::is_stacked(weight) || users[weight.parts[i].tensor] == 1)
        tensors.insert(models::apart_name(weight, static_cast<int64_t>(i)));
  }
  return tensors;
}

StatusOr<Selection> select(const models::Model& model, const io::Checkpoint& checkpoint,
                           const QuantizeOptions& options) {
  return Selector(model, checkpoint, options).run();
}

kernels::WeightFormat QuantizeOptions::format_of(std::string_view tensor) const {
  const bool wide = int8_tensors.contains(tensor) ||
                    std::ranges::any_of(int8_modules, [&](const std::string& pattern) {
                      return matches_pattern(pattern, module_of(tensor));
                    });
  return wide ? kernels::kInt8PerRow : format;
}

bool matches_pattern(std::string_view pattern, std::string_view name) {
  // Backtrack: the last star takes one more character.
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
