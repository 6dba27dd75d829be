// How a model family writes its graph: one call per op, shapes inferred. No fusion here; passes do
// that.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/ir.h"

namespace nereid::graph {

// What few families have, see kernels::Attention.
struct AttentionKind {
  float cap = 0;
  float alibi = 0;
  WeightId sinks = kNone;
};

class Builder {
 public:
  explicit Builder(io::ModelFacts model);

  WeightId add(Weight weight);
  // A [n, k] matrix or a vector of k that is one checkpoint tensor.
  WeightId matrix(std::string name, std::string tensor, int64_t n, int64_t k);
  WeightId vector(std::string name, std::string tensor, int64_t k);
  // A [n, k] matrix for each expert, in the order of their tensors.
  WeightId experts(std::string name, std::vector<std::string> tensors, int64_t n, int64_t k);

  // What kind of norm; RMS norm by default.
  struct NormKind {
    float eps = 0;
    float weight_offset = 0;
    bool centered = false;  // LayerNorm
    int32_t piece = 0;      // columns; 0: those of the weight
  };

  // Values take the name given (it need not be unique; it is for people).
  ValueId embed(std::string name, WeightId table, float scale = 1);
  ValueId add_positions(std::string name, ValueId x, WeightId table);
  ValueId norm(std::string name, ValueId x, WeightId weight, const NormKind& kind,
               WeightId bias = kNone, DType out = DType::kBF16);
  // Each head of x on its own.
  ValueId head_norm(std::string name, ValueId x, WeightId weight, const NormKind& kind);
  ValueId linear(std::string name, ValueId x, WeightId weight, WeightId bias = kNone);  // f32
  ValueId concat(std::string name, std::vector<ValueId> parts);
  // `angles`: of the model's tables.
  ValueId rope(std::string name, ValueId qkv, int32_t angles = 0, bool interleaved = false);
  ValueId attention(std::string name, ValueId qkv, int32_t layer, float scale, int32_t window,
                    const AttentionKind& kind = {});
  ValueId glu(std::string name, ValueId gate_up, kernels::Activation activation, float limit = 0,
              float up_offset = 0);
  ValueId activate(std::string name, ValueId x, kernels::Activation activation);
  ValueId add(std::string name, ValueId x, ValueId y);
  ValueId soft_cap(std::string name, ValueId x, float scale, float cap);
  // The `picked` experts of each row. Set all of `op` but its outputs.
  struct Routed {
    ValueId weights = kNone, experts = kNone;
  };
  Routed route(const std::string& name, Route op, int64_t picked);
  ValueId expert_linear(std::string name, ValueId x, ValueId experts, WeightId weight,
                        WeightId bias = kNone);
  // Of each head, see kernels::HeadLinear.
  ValueId head_linear(std::string name, ValueId x, WeightId weight, int32_t kept, DType out);
  ValueId weighted_sum(std::string name, ValueId x, ValueId weights);
  ValueId sampled_rows(std::string name, ValueId x);

  // The graph, verified.
  StatusOr<Graph> finish(ValueId logits) &&;

 private:
  ValueId value(std::string name, io::Extent extent, DType dtype, int64_t cols);
  io::Extent extent(ValueId id) const { return graph_.values[id].extent; }
  int64_t cols(ValueId id) const { return graph_.values[id].cols; }
  Heads heads() const;

  Graph graph_;
};

}  // namespace nereid::graph
