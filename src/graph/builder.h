// Builder of a family's graph: any op by emit(), common ones by calls that infer widths. Fusion is
// left to passes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/ir.h"

namespace nereid::graph {

// Optional features of kernels::Attention.
struct AttentionKind {
  bool chunked = false;
  float cap = 0;
  float alibi = 0, alibi_scale = 1;
  WeightId sinks = kNone;
  bool bidirectional = false;
  bool in_windows = false;
  WeightId bias = kNone;  // by distance from bias_first on
  int32_t bias_first = 0;
};

class Builder {
 public:
  explicit Builder(io::ModelFacts model);

  WeightId add(Weight weight);
  // A [n, k] matrix or a vector of k from one checkpoint tensor.
  WeightId matrix(std::string name, std::string tensor, int64_t n, int64_t k);
  WeightId vector(std::string name, std::string tensor, int64_t k);
  // A [n, k] matrix per expert, in the order of their tensors.
  WeightId experts(std::string name, std::vector<std::string> tensors, int64_t n, int64_t k);

  // Kind of norm; default: RMS norm.
  struct NormKind {
    float eps = 0;
    float weight_offset = 0;
    bool centered = false;  // LayerNorm
    int32_t piece = 0;      // columns per group; 0: those of the weight
  };

  int64_t cols(ValueId id) const { return graph_.values[id].cols; }
  const Weight& weight(WeightId id) const { return graph_.weights[id]; }

  // Value names are for people and need not be unique.

  // Adds `op` and returns it with its outputs: each required output becomes a value of `cols`
  // columns (0: as the first input) and of `type` (default: the first type in the op's
  // declaration). Several outputs are named by their fields.
  template <class Op>
  Op emit(const std::string& name, Op op, int64_t cols = 0, std::optional<DType> type = {});

  ValueId embed(std::string name, WeightId table, float scale = 1);
  ValueId norm(std::string name, ValueId x, WeightId weight, const NormKind& kind,
               WeightId bias = kNone, DType out = DType::kBF16);
  // Norm of each head of x.
  ValueId head_norm(std::string name, ValueId x, WeightId weight, const NormKind& kind);
  ValueId linear(std::string name, ValueId x, WeightId weight, WeightId bias = kNone);  // f32
  ValueId concat(std::string name, std::vector<ValueId> parts);
  ValueId slice(std::string name, ValueId x, int64_t column, int64_t cols);
  // `angles`: index of the model's rope tables.
  ValueId rope(std::string name, ValueId qkv, int32_t angles = 0, bool interleaved = false);
  ValueId attention(std::string name, ValueId qkv, int32_t layer, float scale, int32_t window,
                    const AttentionKind& kind = {});
  // Cross attention with queries q to layer `layer` of the encoder's keys and values.
  ValueId cross_attention(std::string name, ValueId q, int32_t layer, float scale);
  // Stores an encoder's keys and values for layer `layer`; `heads` are the decoder's.
  void store_kv(ValueId kv, const Heads& heads, int32_t layer);
  ValueId glu(std::string name, ValueId gate_up, kernels::Activation activation, float limit = 0,
              float up_offset = 0);
  ValueId add(std::string name, ValueId x, ValueId y);
  ValueId sampled_rows(std::string name, ValueId x);

  // Registers the input of the next layer.
  void add_residual(ValueId x) { graph_.residuals.push_back(x); }

  // Returns the verified graph. `hidden`: input of the head, as an output of the plan. An encoder
  // has no logits.
  StatusOr<Graph> finish(ValueId logits, ValueId hidden = kNone) &&;

 private:
  ValueId value(std::string name, io::RowCount extent, DType dtype, int64_t cols);
  io::RowCount extent(ValueId id) const { return graph_.values[id].extent; }
  Heads heads() const;

  Graph graph_;
};

template <class Op>
Op Builder::emit(const std::string& name, Op op, int64_t cols, std::optional<DType> type) {
  using kernels::Role;
  io::RowCount extent = io::RowCount::kTokens;
  int num_inputs = 0, num_outputs = 0;
  kernels::for_fields(op, [&](const auto& field, const auto& operand) {
    constexpr Role kRole = std::remove_cvref_t<decltype(field)>::kRole;
    if constexpr (kRole == Role::kOut) num_outputs += !field.optional;
    if constexpr (kRole == Role::kIn)
      if (num_inputs++ == 0) {
        extent = this->extent(operand);
        if (cols == 0) cols = this->cols(operand);
      }
  });
  kernels::for_fields(op, [&](const auto& field, auto& operand) {
    if constexpr (std::remove_cvref_t<decltype(field)>::kRole == Role::kOut) {
      if (field.optional) return;
      operand = value(num_outputs > 1 ? name + "." + std::string(field.name) : name,
                      field.rows == kernels::OutputRows::kSampled ? io::RowCount::kSampled : extent,
                      type.value_or(field.types.types[0]), cols);
    }
  });
  graph_.nodes.push_back({op});
  return op;
}

}  // namespace nereid::graph
