// Makes of the whole model's graph that of one tensor rank. Layouts of values follow from the
// divisions of weights; operands that an op cannot read divided get an all_reduce or all_gather.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "graph/passes/partition/rank_share.h"
#include "graph/passes/passes.h"

namespace nereid::graph {

// Which part of a value a rank has.
struct RankLayout {
  Division columns;      // of the whole value; empty: all columns on every rank
  bool partial = false;  // the value is the sum over ranks
  // Pieces of the experts of other ranks are zeros, or undefined and not read.
  bool masked = false;
  bool by_experts = false;  // columns are divided among the ranks of an expert
  bool is_whole() const { return columns.empty() && !partial && !masked; }
};

class Partitioner {
 public:
  Partitioner(const Graph& graph, const io::Mapping& mapping);
  StatusOr<Graph> run() &&;

 private:
  const Value& value(ValueId id) const { return in_.values[id]; }
  const RankLayout& layout(ValueId id) const { return layouts_[id]; }
  const Team& team_of(const RankLayout& layout) const {
    return layout.by_experts ? expert_ : tensor_;
  }

  ValueId new_value(Value value, int64_t cols);
  // The rank's value of `id`, with its layout.
  ValueId set(ValueId id, RankLayout layout);
  template <class Op>
  void emit(Op op) {
    out_.nodes.push_back({std::move(op)});
  }

  // The value with all columns and the sum of all ranks.
  StatusOr<ValueId> whole(ValueId id);
  StatusOr<ValueId> gather(ValueId id, ValueId x);

  // Refuses divisions that do not fit the ranks.
  static Status check(const Weight& weight, const Division& division, const Team& team);
  static Status check_columns(const Weight& weight, Range range);

  // The weight, or the given experts, rows and columns of it.
  struct Cut {
    std::optional<Range> experts, columns;
    std::optional<Ranges> rows;  // of each matrix; elements of a vector
    std::string suffix;
  };
  WeightId take(WeightId id, const Cut& cut = {});

  // Ops that read whole values and make whole ones.
  template <class Op>
  Status add_whole(Op op) {
    Status status;
    kernels::for_fields(op, [&](const auto& field, auto& operand) {
      constexpr kernels::Role kRole = std::remove_cvref_t<decltype(field)>::kRole;
      if constexpr (kRole == kernels::Role::kIn) {
        const StatusOr<ValueId> x = whole(operand);
        if (!x.ok()) return status.Update(x.status());
        operand = *x;
      }
      if constexpr (kRole == kernels::Role::kMatrix || kRole == kernels::Role::kVector)
        operand = take(operand);
    });
    RETURN_IF_ERROR(status);
    kernels::for_fields(op, [&](const auto& field, auto& operand) {
      if constexpr (std::remove_cvref_t<decltype(field)>::kRole == kernels::Role::kOut)
        if (operand != kNone) operand = set(operand, {});
    });
    emit(std::move(op));
    return ok();
  }

  // Functions of single elements keep the division.
  template <class Op>
  Status add_elementwise(Op op) {
    RankLayout layout = this->layout(op.x);
    if (layout.partial) {
      ASSIGN_OR_RETURN(op.x, whole(op.x));
      layout = {};
    } else {
      op.x = local_[op.x];
    }
    kernels::for_fields(op, [&](const auto& field, auto& operand) {
      if constexpr (std::remove_cvref_t<decltype(field)>::kRole == kernels::Role::kVector)
        operand = take(operand);
    });
    op.out = set(op.out, std::move(layout));
    emit(std::move(op));
    return ok();
  }

  // add(op): the ops that the rank has in its place.
  template <class Op>
  Status add(const Op& op) {
    return add_whole(op);
  }
  Status add(const Concat& op);
  Status add(const Slice& op);
  Status add(const Activate& op) { return add_elementwise(op); }
  Status add(const SoftCap& op) { return add_elementwise(op); }
  Status add(const Xielu& op) { return add_elementwise(op); }
  Status add(const ScaleByPosition& op) { return add_elementwise(op); }
  Status add(const GatherRows& op);
  Status add(const Add& op);
  Status add(const Glu& op);
  Status add(const Norm& op);
  Status add_row_norm(const Norm& op);
  // Heads on this rank.
  kernels::Heads local_heads(kernels::Heads heads, const RankLayout& layout) const;
  Status add(const Rope& op);
  Status add(const Attention& op);
  Status add(const CrossAttention& op);
  Status add(const StoreKv& op);
  Status add(const HeadLinear& op);
  Status add(const Linear& op);
  // Parts of the columns over all ranks; sums are those of as many numbers, in a pairwise tree.
  StatusOr<int64_t> num_parts(const Weight& weight, const Units& units) const;
  // The product of the rank's columns: a part of the sum.
  Status add_row_parallel(const Linear& op);
  // Indices of the rank's experts.
  ValueId select_experts(ValueId experts, int64_t num_experts);
  Status add(const ExpertLinear& op);
  Status add(const WeightedSum& op);
  // Adapters have all inputs of a product and the rank's outputs.
  Status add(const LowRank& op);
  Status add_expert_adapters(const LowRank& op, LowRank local);
  // The part of a module in columns `here` of its product.
  void add_part(int32_t index, const Ranges& here);

  const Graph& in_;
  const io::Mapping mapping_;
  const Team tensor_, expert_;
  Graph out_;
  std::vector<RankLayout> layouts_;          // by value of in_
  std::vector<ValueId> local_, whole_;       // values of out_, by value of in_
  std::map<std::string, WeightId> weights_;  // of out_, by cut
  std::map<ValueId, ValueId> selected_;      // local experts, by experts
};

}  // namespace nereid::graph
