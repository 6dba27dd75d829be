// The compiler's intermediate form: a straight-line program of ops over token-packed matrices.
// Every value is written once; ops are pure here (updating in place and sharing memory are
// decisions of the memory planner).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "io/plan.h"
#include "kernels/api/ops.h"
#include "tensor/dtype.h"

namespace nereid::graph {

using ValueId = io::ValueId;
using WeightId = io::WeightId;
using io::kNone;

// A matrix [rows of extent, cols].
struct Value {
  std::string name;
  io::Extent extent = io::Extent::kTokens;
  DType dtype = DType::kF32;
  int64_t cols = 0;

  // Set by plan_memory; see io::Value.
  int64_t stride = 0, column = 0;
  int64_t offset = kNone;
};

// What one checkpoint tensor gives to a weight: rows of a matrix, elements of a vector.
struct WeightPart {
  std::string tensor;
  int64_t size = 0;
  bool operator==(const WeightPart&) const = default;
};

// A matrix [n, k], its parts stacked along n; or a vector of k (n = 1), its parts end to end.
struct Weight {
  std::string name;
  std::vector<WeightPart> parts;
  int64_t n = 0, k = 0;
  bool is_vector = false;
  kernels::WeightLayout layout = kernels::WeightLayout::kRowMajor;  // set by choose_kernels
};

// f32 rows of the table for the step's tokens.
struct Embed {
  WeightId table = kNone;
  ValueId out = kNone;
};
// sum = x + add; out = sum / rms(sum) * weight. Without `add`: sum is x, sum_out is kNone.
struct Norm {
  ValueId x = kNone;
  ValueId add = kNone;
  WeightId weight = kNone;
  float eps = 0;
  ValueId out = kNone;
  ValueId sum_out = kNone;
};
struct Linear {
  ValueId x = kNone;
  WeightId weight = kNone;
  WeightId bias = kNone;
  ValueId out = kNone;
};
// Columns side by side. Costs nothing at run time: the parts are written where the whole will be.
struct Concat {
  std::vector<ValueId> parts;
  ValueId out = kNone;
};
struct Heads {
  int32_t num = 0, num_kv = 0, dim = 0;
  int64_t width() const { return (int64_t{num} + 2 * int64_t{num_kv}) * dim; }
  bool operator==(const Heads&) const = default;
};
struct Rope {
  ValueId qkv = kNone;
  Heads heads;
  ValueId out = kNone;
};
struct Attention {
  ValueId qkv = kNone;
  Heads heads;
  int32_t layer = 0;
  int32_t window = 0;  // 0 = all
  float scale = 0;
  bool has_rope = false;
  ValueId out = kNone;
};
struct Glu {
  ValueId x = kNone;
  kernels::Activation activation = kernels::Activation::kSilu;
  ValueId out = kNone;
};
struct Add {
  ValueId x = kNone, y = kNone;
  ValueId out = kNone;
};
struct GatherRows {
  ValueId x = kNone;
  ValueId out = kNone;
};
using Op = std::variant<Embed, Norm, Linear, Concat, Rope, Attention, Glu, Add, GatherRows>;

struct Node {
  Op op;
  std::string kernel;  // set by choose_kernels
};

struct Graph {
  io::ModelFacts model;
  std::vector<Value> values;
  std::vector<Weight> weights;
  std::vector<Node> nodes;  // in order of execution
  ValueId logits = kNone;
  int64_t arena_bytes_per_row[io::kNumExtents] = {};  // set by plan_memory
};

std::string_view name_of(const Op& op);  // "embed", ..., "concat"

// Operands of an op in declaration order; absent ones (kNone) are left out.
std::vector<ValueId> inputs(const Op& op);
std::vector<ValueId> outputs(const Op& op);
std::vector<WeightId> weights(const Op& op);

// Renames: every use of `from` as an input (of one op; or of all and the logits) becomes `to`.
void replace_inputs(Op& op, ValueId from, ValueId to);
void replace_uses(Graph& graph, ValueId from, ValueId to);
void replace_weight(Graph& graph, WeightId from, WeightId to);

// For every value: the indices of the nodes that read it, and the node that writes it (kNone: no
// one). The logits count as read by a node after the last.
struct Uses {
  std::vector<std::vector<int32_t>> readers;
  std::vector<int32_t> writer;
  std::vector<int32_t> weight_readers;  // number of nodes, by weight
};
Uses find_uses(const Graph& graph);

// Drops values and weights that no node mentions, renumbering the rest.
void sweep(Graph& graph);

// Drops the marked nodes, then sweeps. `dropped`: one flag per node.
void drop_nodes(Graph& graph, const std::vector<bool>& dropped);

// One line per node, for people.
std::string print(const Graph& graph);

}  // namespace nereid::graph
