#include "models/drafts/head_graph.h"

#include <utility>
#include <vector>

namespace nereid::models {
namespace {

// Product of the concatenated terms, each rounded to bf16.
graph::ValueId product(graph::Builder& b, const std::string& name,
                       const std::vector<graph::ValueId>& terms, graph::WeightId weight,
                       graph::WeightId bias = graph::kNone) {
  graph::ValueId sum = b.linear(name, terms.front(), weight, bias);
  for (size_t i = 1; i < terms.size(); ++i)
    sum = b.add(name + ".sum", sum, b.linear(fmt::format("{}.{}", name, i), terms[i], weight));
  return sum;
}

std::filesystem::path absolute_of(const std::filesystem::path& dir) {
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::weakly_canonical(dir, error);
  return error ? dir : absolute;
}

}  // namespace

graph::WeightId add_target_weight(graph::Builder& b, const Model& target, std::string_view name) {
  for (const graph::Weight& weight : target.graph.weights)
    if (weight.name == name) return b.add(weight);
  return graph::kNone;
}

graph::ValueId external_rows(graph::Builder& b, std::initializer_list<RowOf> rows) {
  graph::Weight table{.name = "given", .n = 1};
  for (const RowOf& row : rows) {
    table.parts.push_back({.tensor = row.tensor, .size = 1, .total = row.rows, .cols = row.cols});
    table.k += row.cols;
  }
  return b.embed("embed", b.add(std::move(table)));
}

graph::ValueId residual_head(graph::Builder& b, graph::ValueId x, const std::string& prefix,
                             int32_t num_blocks, int64_t vocab_size) {
  const int64_t width = b.cols(x);
  std::vector<graph::ValueId> terms = {x};
  for (int32_t i = 0; i < num_blocks; ++i) {
    const std::string name = fmt::format("blocks.{}", i);
    const std::string tensor = fmt::format("{}{}.linear.", prefix, i);
    const auto weight = b.matrix(name, tensor + "weight", width, width);
    const auto bias = b.vector(name + ".bias", tensor + "bias", width);
    terms.push_back(
        b.emit(name + ".act", graph::Activate{.x = product(b, name, terms, weight, bias),
                                              .activation = kernels::Activation::kSilu})
            .out);
  }
  const std::string head = fmt::format("{}{}.weight", prefix, num_blocks);
  return product(b, "head", terms, b.matrix("head", head, vocab_size, width));
}

io::ModelFacts head_facts(const Traits& t, std::string_view architecture,
                          const std::filesystem::path& dir, const Model& target) {
  const std::filesystem::path absolute = absolute_of(dir);
  io::ModelFacts facts{.name = absolute.filename().string(),
                       .architecture = std::string(architecture),
                       .source_dir = absolute.string(),
                       .vocab_size = t.vocab_size,
                       .hidden_size = t.hidden_size,
                       .num_layers = 1,
                       .num_heads = t.num_heads,
                       .num_kv_heads = t.num_kv_heads,
                       .head_dim = t.latent > 0 ? t.rotary_dims + t.latent : t.head_dim,
                       .latent = t.latent,
                       .max_positions = target.graph.model.max_positions};
  facts.ropes = rope_tables(t, t.max_positions);
  return facts;
}

io::ModelFacts stateless_facts(std::string_view architecture, const std::filesystem::path& dir,
                               const io::ModelFacts& target) {
  const std::filesystem::path absolute = absolute_of(dir);
  return {.name = absolute.filename().string(),
          .architecture = std::string(architecture),
          .source_dir = absolute.string(),
          .vocab_size = target.vocab_size,
          .hidden_size = target.hidden_size,
          .num_layers = 0,
          .num_heads = 1,
          .num_kv_heads = 1,
          .head_dim = 1,
          .max_positions = target.max_positions};
}

}  // namespace nereid::models
