#include "models/weights.h"

#include <fmt/ranges.h>

#include <set>

#include "base/check.h"

namespace nereid::models {
namespace {

int64_t size_of(Dim dim, const Traits& t) {
  switch (dim) {
    case Dim::kOne:
      return 1;
    case Dim::kVocab:
      return t.vocab_size;
    case Dim::kPositions:
      return t.max_positions;
    case Dim::kHidden:
      return t.hidden_size;
    case Dim::kIntermediate:
      return t.intermediate_size;
    case Dim::kHead:
      return t.head_dim;
    case Dim::kQuery:
      return int64_t{t.num_heads} * t.head_dim;
    case Dim::kKeyValue:
      return int64_t{t.num_kv_heads} * t.head_dim;
    case Dim::kQueryKeyValue:
      return (int64_t{t.num_heads} + 2 * int64_t{t.num_kv_heads}) * t.head_dim;
  }
  return 0;
}

Status check_part(const io::Checkpoint& checkpoint, const graph::WeightPart& part,
                  const std::vector<int64_t>& shape) {
  const io::Checkpoint::Entry* entry = checkpoint.find(part.tensor);
  if (!entry)
    return invalid_argument("{}: tensor '{}' is missing", checkpoint.main_file().string(),
                            part.tensor);
  const io::StoredTensor& tensor = *entry->tensor;
  const bool is_float =
      tensor.type == DType::kBF16 || tensor.type == DType::kF16 || tensor.type == DType::kF32;
  if (!is_float)
    return invalid_argument("{}: tensor '{}' has dtype {}, allowed are BF16, F16, F32",
                            entry->file->path().string(), part.tensor, tensor.dtype);
  if (tensor.shape != shape)
    return invalid_argument("{}: tensor '{}' has shape {}, config.json asks for [{}]",
                            entry->file->path().string(), part.tensor, tensor.shape_text(),
                            fmt::join(shape, ", "));
  return ok();
}

}  // namespace

Weights::Weights(graph::Builder& builder, const Traits& traits, std::span<const WeightRule> rules,
                 const std::string& scope, const std::string& tensor_scope) {
  for (const WeightRule& rule : rules) {
    if (rule.when && !rule.when(traits)) continue;
    std::string name = scope + std::string(rule.name);
    std::string tensor = tensor_scope + std::string(rule.tensor);
    const int64_t n = size_of(rule.n, traits);
    ids_.emplace_back(rule.name, rule.k == Dim::kOne
                                     ? builder.vector(std::move(name), std::move(tensor), n)
                                     : builder.matrix(std::move(name), std::move(tensor), n,
                                                      size_of(rule.k, traits), rule.transposed));
  }
}

graph::WeightId Weights::operator[](std::string_view name) const {
  for (const auto& [key, id] : ids_)
    if (key == name) return id;
  return graph::kNone;
}

Status check_tensors(const graph::Graph& graph, const io::Checkpoint& checkpoint,
                     const Traits& traits, Ignores ignores) {
  std::set<std::string_view> wanted;
  for (const graph::Weight& weight : graph.weights)
    for (const graph::WeightPart& part : weight.parts) {
      wanted.insert(part.tensor);
      std::vector<int64_t> shape = {part.tensor_rows()};
      if (!weight.is_vector) shape.push_back(part.tensor_cols(weight.k));
      if (part.transposed) std::swap(shape[0], shape[1]);
      RETURN_IF_ERROR(check_part(checkpoint, part, shape));
    }
  for (const io::Checkpoint::Entry& entry : checkpoint.entries())
    if (!wanted.contains(entry.tensor->name) && !ignores(traits, entry.tensor->name))
      return invalid_argument("{}: tensor '{}' has no place in a model of this config.json",
                              entry.file->path().string(), entry.tensor->name);
  return ok();
}

}  // namespace nereid::models
