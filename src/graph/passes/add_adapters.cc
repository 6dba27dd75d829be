// LoRA: adds a low_rank op behind the embedding and each product (experts included), with a module
// for each of the family's weights that consists of whole rows of a Hugging Face matrix.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/passes/passes.h"

namespace nereid::graph {
namespace {

using io::AdapterModule;

constexpr std::string_view kWeightSuffix = ".weight", kTiedWeight = "head", kTiedHead = "lm_head";

// Whether the part is a whole tensor, or a whole matrix of a stacked one.
bool is_whole(const WeightPart& part) {
  WeightPart whole{.tensor = part.tensor, .size = part.size};
  whole.total = part.total == part.size ? part.total : 0;
  whole.transposed = part.transposed;
  whole.stacked = part.stacked, whole.index = part.index;
  return part == whole;
}

// Whether it is every second row of such a matrix.
bool is_every_other(const WeightPart& part) {
  WeightPart all = part;
  all.first = 0, all.step = 1, all.total = 0;
  return part.stacked > 0 && part.step == 2 && part.total == 2 * part.size && part.first < 2 &&
         is_whole(all);
}

// PEFT name of an expert's matrix; "": none.
std::string name_of_expert(const WeightPart& part) {
  if (part.stacked > 0) {
    const std::string name = fmt::format("{}[{}]", part.tensor, part.index);
    if (is_whole(part)) return name;
    return is_every_other(part) ? fmt::format("{}[{}::2]", name, part.first) : "";
  }
  if (!is_whole(part) || !part.tensor.ends_with(kWeightSuffix)) return "";
  return part.tensor.substr(0, part.tensor.size() - kWeightSuffix.size());
}

// Whether the part consists of whole rows of a matrix.
bool has_whole_rows(const WeightPart& part) {
  WeightPart rows{.tensor = part.tensor, .size = part.size};
  rows.first = part.first, rows.total = part.total, rows.step = part.step;
  rows.transposed = part.transposed;
  return part == rows && part.tensor.ends_with(kWeightSuffix);
}

// The module with the rows of the source's parts, all of one tensor; empty name: impossible.
AdapterModule module_of(const WeightSource& source) {
  const WeightPart& first = source.parts.front();
  AdapterModule module;
  for (const WeightPart& part : source.parts) {
    if (!has_whole_rows(part) || part.tensor != first.tensor ||
        part.transposed != first.transposed || part.tensor_rows() != first.tensor_rows())
      return {};
    module.n += part.size;
    module.rows.push_back({part.first, part.size, part.step});
  }
  module.name = source.weight;
  module.source = first.tensor.substr(0, first.tensor.size() - kWeightSuffix.size());
  module.source_rows = first.tensor_rows();
  if (is_whole(first)) module.source_rows = 0, module.rows.clear();
  return module;
}

// One module per expert and source. Empty: a source cannot be named by adapters.
std::vector<AdapterModule> modules_of(const Weight& weight) {
  std::vector<AdapterModule> modules;
  int64_t column = 0;
  const auto add = [&](AdapterModule module) {
    module.k = weight.k, module.column = column % weight.n;
    column += module.n;
    modules.push_back(std::move(module));
  };
  for (const WeightSource& source : sources_of(weight)) {
    if (source.parts.empty()) return {};
    if (weight.experts == 1) {
      AdapterModule module = module_of(source);
      if (module.name.empty()) return {};
      add(std::move(module));
      continue;
    }
    const size_t each = source.parts.size() / static_cast<size_t>(weight.experts);
    for (size_t i = 0; i < source.parts.size(); ++i) {
      std::string name = name_of_expert(source.parts[i]);
      if (name.empty() || each == 0) return {};
      add({.name = fmt::format("{}[{}]", source.weight, i / each),
           .n = source.parts[i].size,
           .source = std::move(name)});
    }
  }
  if (modules.size() % static_cast<size_t>(weight.experts) != 0 || column % weight.n != 0)
    return {};
  return modules;
}

// A tied head is a module of its own, "lm_head" in Hugging Face's models.
bool is_tied_head(const Graph& graph, const Linear& linear) {
  if (graph.values[linear.out].cols != graph.model.vocab_size) return false;
  const std::vector<WeightPart>& parts = graph.weights[linear.weight].parts;
  return std::ranges::any_of(graph.nodes, [&](const Node& node) {
    const auto* const embed = std::get_if<Embed>(&node.op);
    return embed && graph.weights[embed->table].parts == parts;
  });
}

// A low_rank op behind a node, without its first module's index.
struct Addition {
  LowRank op;
  std::vector<AdapterModule> modules;
};

Addition add_to(const Graph& graph, const Embed& embed) {
  Addition added{{.y = embed.out, .scale = embed.scale}, modules_of(graph.weights[embed.table])};
  for (AdapterModule& m : added.modules) {
    std::swap(m.k, m.n);  // the table has a row per token
    m.of_tokens = true;
  }
  if (added.modules.size() > 1 || (!added.modules.empty() && added.modules[0].has_rows()))
    added.modules.clear();
  return added;
}

Addition add_to(const Graph& graph, const Linear& linear) {
  Addition added{{.x = linear.x, .y = linear.out}, modules_of(graph.weights[linear.weight])};
  if (!added.modules.empty() && is_tied_head(graph, linear))
    added.modules[0].name = kTiedWeight, added.modules[0].source = kTiedHead;
  return added;
}

Addition add_to(const Graph& graph, const ExpertLinear& linear) {
  const Weight& weight = graph.weights[linear.weight];
  return {{.x = linear.x,
           .experts = linear.experts,
           .y = linear.out,
           .num_experts = static_cast<int32_t>(weight.experts)},
          modules_of(weight)};
}

template <class Op>
Addition add_to(const Graph&, const Op&) {
  return {};
}

bool can_add(const Graph& graph, const LowRank& op) {
  return graph.values[op.y].dtype == DType::kF32 &&
         (op.x == kNone || graph.values[op.x].dtype == DType::kBF16);
}

}  // namespace

Status add_adapters(Graph& graph, const PassContext& context) {
  if (!context.adapters) return ok();
  std::vector<Node> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    nodes.push_back(graph.nodes[i]);
    auto [op, modules] =
        std::visit([&](const auto& node) { return add_to(graph, node); }, nodes.back().op);
    if (modules.empty() || !can_add(graph, op)) continue;
    const ValueId product = op.y;
    Value changed = graph.values[product];
    changed.name += ".adapted";
    graph.values.push_back(std::move(changed));
    op.out = static_cast<ValueId>(graph.values.size() - 1);
    op.k = modules[0].k;
    op.first_module = static_cast<int32_t>(graph.modules.size());
    op.num_modules = static_cast<int32_t>(modules.size()) / op.num_experts;
    for (size_t j = i + 1; j < graph.nodes.size(); ++j)
      replace_inputs(graph.nodes[j].op, product, op.out);
    if (graph.logits == product) graph.logits = op.out;
    nodes.push_back({op});
    graph.modules.insert(graph.modules.end(), modules.begin(), modules.end());
  }
  graph.nodes = std::move(nodes);
  return ok();
}

}  // namespace nereid::graph
