#include "models/head_graph.h"

#include <utility>

namespace nereid::models {

graph::WeightId add_target_weight(graph::Builder& b, const Model& target, std::string_view name) {
  for (const graph::Weight& weight : target.graph.weights)
    if (weight.name == name) return b.add(weight);
  return graph::kNone;
}

graph::ValueId given_rows(graph::Builder& b, std::initializer_list<RowOf> rows) {
  graph::Weight table{.name = "given", .n = 1};
  for (const RowOf& row : rows) {
    table.parts.push_back({.tensor = row.tensor, .size = 1, .total = row.rows, .cols = row.cols});
    table.k += row.cols;
  }
  return b.embed("embed", b.add(std::move(table)));
}

io::ModelFacts head_facts(const Traits& t, std::string_view architecture,
                          const std::filesystem::path& dir, const Model& target) {
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::weakly_canonical(dir, error);
  if (error) absolute = dir;
  io::ModelFacts facts{.name = absolute.filename().string(),
                       .architecture = std::string(architecture),
                       .source_dir = absolute.string(),
                       .vocab_size = t.vocab_size,
                       .hidden_size = t.hidden_size,
                       .num_layers = 1,
                       .num_heads = t.num_heads,
                       .num_kv_heads = t.num_kv_heads,
                       .head_dim = t.latent > 0 ? t.turning + t.latent : t.head_dim,
                       .latent = t.latent,
                       .max_positions = target.graph.model.max_positions};
  for (const RopeTraits& rope : t.ropes) facts.ropes.push_back(rope_table(rope, t.head_dim));
  return facts;
}

}  // namespace nereid::models
