// The compiler's intermediate form: a straight-line program of ops over token-packed matrices.
// Every value is written once; ops are pure here (updating in place and sharing memory are
// decisions of the memory planner).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
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

// stride, column and offset are set by plan_memory.
using Value = io::Value;

// What one checkpoint tensor gives to a weight: `size` rows of a matrix, elements of a vector. Rows
// and columns are those of the weight; a transposed tensor has them the other way round. Parts that
// give only some of the columns follow one another from left to right, with the same rows.
struct WeightPart {
  std::string tensor;
  int64_t size = 0;
  int64_t first = 0;       // of the tensor's rows (elements)
  int64_t total = 0;       // rows (elements) of the tensor; 0: size
  int64_t first_col = 0;   // of the tensor's columns, as many as the weight has
  int64_t total_cols = 0;  // columns of the tensor; 0: as many as the weight has
  bool transposed = false;
  int64_t step = 1;     // from one row (element) to the next
  int64_t stacked = 0;  // such tensors in one, along a dimension in front; 0: there is no such one
  int64_t index = 0;    // of those: this one
  int64_t cols = 0;     // of the weight's columns; 0: all
  // Of a rotary head's 2 * pairs rows: the tensor has rows i and i + pairs side by side; 0: it has
  // them in order.
  int64_t pairs = 0;
  bool unit_rows = false;  // each row is divided by its length
  float added = 0;         // to every number

  int64_t width(int64_t k) const { return cols > 0 ? cols : k; }
  int64_t tensor_row(int64_t row) const {
    const int64_t at = first + row * step;
    if (pairs == 0) return at;
    const int64_t in_head = at % (2 * pairs);
    return at - in_head + 2 * (in_head % pairs) + in_head / pairs;
  }
  int64_t tensor_rows() const { return total > 0 ? total : size; }
  int64_t tensor_cols(int64_t k) const { return total_cols > 0 ? total_cols : width(k); }
  bool operator==(const WeightPart&) const = default;
};

// A weight of a family and the parts that its tensors have of it in Hugging Face's layout, by which
// adapters name it.
struct WeightSource {
  std::string weight;  // "layers.0.attn.q"
  std::vector<WeightPart> parts;
};

// A matrix [n, k], its parts stacked along n; or a vector of k (n = 1), its parts end to end. With
// `experts` > 1 as many of them, the parts of the first in front.
struct Weight {
  std::string name;
  std::vector<WeightPart> parts;
  int64_t n = 0, k = 0;
  bool is_vector = false;
  kernels::WeightFormat format = {};  // what it becomes in the engine
  // The format in which the checkpoint has all of it, where an engine can take it over as it is.
  std::optional<kernels::WeightFormat> stored = {};
  kernels::WeightLayout layout = kernels::WeightLayout::kRowMajor;  // set by choose_kernels
  int64_t experts = 1;
  // What it is made of where `name` and `parts` do not say it: another layout, or several weights.
  std::vector<WeightSource> sources = {};
};

// The weight's sources: `sources`, or name and parts themselves.
std::vector<WeightSource> sources_of(const Weight& weight);

using namespace kernels::ids;  // Embed, Norm, ...: the ops of a plan
using kernels::Heads;

// Columns side by side. Costs nothing at run time: the parts are written where the whole will be.
struct Concat {
  static constexpr std::string_view kName = "concat";
  static constexpr bool kRowsIndependent = true;
  std::vector<ValueId> parts;
  ValueId out = kNone;
};

// Columns [column, column + cols of out) of x. Costs nothing either: `out` is a part of x's memory.
struct Slice {
  static constexpr std::string_view kName = "slice";
  static constexpr bool kRowsIndependent = true;
  ValueId x = kNone;
  int64_t column = 0;
  ValueId out = kNone;
};
// Whether an op only says where values lie: it has no kernel.
template <class T>
inline constexpr bool kIsLayout = std::is_same_v<T, Concat> || std::is_same_v<T, Slice>;

template <class Variant, class... More>
struct Joined;
template <class... Ops, class... More>
struct Joined<std::variant<Ops...>, More...> {
  using type = std::variant<Ops..., More...>;
};
using Op = Joined<io::Op, Concat, Slice>::type;

// A weight as a kernel gets it, without addresses.
kernels::WeightView shape_of(const Weight& weight);

struct Node {
  Op op;
  std::string kernel;  // set by choose_kernels; see io::Call
};

struct Graph {
  io::ModelFacts model;
  std::vector<Value> values;
  std::vector<Weight> weights;
  std::vector<Node> nodes;                 // in order of execution
  std::vector<io::AdapterModule> modules;  // see io::Plan
  ValueId logits = kNone;
  std::vector<ValueId> hidden;     // see io::Plan; rows may be all tokens as long as passes run
  std::vector<ValueId> residuals;  // what each layer of a model reads, as its family has built it
  int64_t arena_bytes_per_row[io::kNumExtents] = {};  // set by plan_memory
};

std::string_view name_of(const Op& op);  // "embed", ..., "concat"
bool is_row_wise(const Op& op);          // kRowsIndependent

// Operands of an op in declaration order; absent ones (kNone) are left out.
std::vector<ValueId> inputs(const Op& op);
std::vector<ValueId> outputs(const Op& op);
std::vector<WeightId> weights(const Op& op);
std::vector<WeightId> matrices(const Op& op);  // those of `weights` that are matrices

// An op whose output takes over the input's memory: always, or only where no later node reads
// the input.
struct InPlace {
  ValueId in = kNone, out = kNone;
  bool always = true;
};
std::vector<InPlace> updates_in_place(const Op& op);

// Renames: every use of `from` as an input (of one op; or of all and the plan's outputs) becomes
// `to`.
void replace_inputs(Op& op, ValueId from, ValueId to);
void replace_uses(Graph& graph, ValueId from, ValueId to);
void replace_weight(Graph& graph, WeightId from, WeightId to);

// For every value: the indices of the nodes that read it, and the node that writes it (kNone: no
// one). The plan's outputs count as read by a node after the last.
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
