// Intermediate representation: a straight-line program of ops over token-packed matrices. Each
// value is written once; ops are pure (plan_memory decides on in-place updates and shared memory).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
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

// plan_memory sets stride, column and offset.
using Value = io::Value;

// A table of positions without a tensor: row p = [sin(p * r(i)) | cos(p * r(i))] for the columns i
// of a half.
enum class Sinusoids : uint8_t {
  kNone,
  kPowers,   // r(i) = 10000^(-2i / width)
  kSpanned,  // r(i) = 10000^(-i / (width / 2 - 1))
};

// Slice of a checkpoint tensor in a weight: `size` rows of a matrix, or elements of a vector. Rows
// and columns are those of the weight; a transposed tensor has them swapped. Parts with some of the
// columns are listed left to right, with equal rows.
struct WeightPart {
  std::string tensor;
  int64_t size = 0;
  int64_t first = 0;       // first row (element) in the tensor
  int64_t total = 0;       // rows (elements) of the tensor; 0: size
  int64_t first_col = 0;   // first column in the tensor
  int64_t total_cols = 0;  // columns of the tensor; 0: the part's
  bool transposed = false;
  int64_t step = 1;     // row (element) stride
  int64_t stacked = 0;  // leading dimension of the tensor; 0: none
  int64_t index = 0;    // index in that dimension
  int64_t cols = 0;     // columns of the weight; 0: all
  // Rotary heads of 2 * pairs rows: the tensor interleaves rows i and i + pairs; 0: in order.
  int64_t pairs = 0;
  bool unit_rows = false;  // rows are normalised to length 1
  float added = 0;         // constant added to each number
  int64_t col_step = 1;    // stride of the part's columns in the tensor's
  int64_t window = 0;      // a convolution's tensor [rows, channels, window], flattened; 0: none
  // The tensor has other dimensions, with the same numbers in the same order: the kernel of a
  // convolution whose stride is its size, or a row that is stored as a vector.
  bool is_flat = false;
  std::string row_scales = {};  // vector tensor: factor of each row (element); empty: none
  Sinusoids sinusoids = Sinusoids::kNone;  // the part is made, of rows from `first` on
  // A vector's elements by index in a tensor [total, total_cols]; empty: in order.
  std::vector<int32_t> elements = {};

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

// A family's weight with its parts in Hugging Face's layout; adapters refer to it.
struct WeightSource {
  std::string weight;  // "layers.0.attn.q"
  std::vector<WeightPart> parts;
};

// Columns (or rows) of which each rank has whole units: `count` units of `size`, side by side. One
// unit: on every rank.
struct Units {
  int64_t count = 1, size = 0;
  bool repeats = false;     // more ranks than units share each of them
  bool may_differ = false;  // ranks may have different numbers of units
  bool operator==(const Units&) const = default;
};
using Division = std::vector<Units>;  // side by side

// A matrix [n, k] of parts stacked along n, or a vector of k (n = 1) of concatenated parts.
// `experts` > 1: that many matrices, in order.
struct Weight {
  std::string name;
  std::vector<WeightPart> parts;
  int64_t n = 0, k = 0;
  bool is_vector = false;
  kernels::WeightFormat format = {};  // in the engine
  // The checkpoint's format of all parts, if an engine can store it unchanged (pass through).
  std::optional<kernels::WeightFormat> stored = {};
  kernels::WeightLayout layout = kernels::WeightLayout::kRowMajor;  // set by choose_kernels
  int64_t experts = 1;
  // Division of a matrix among ranks, by rows or by columns; both empty: whole on every rank.
  // `by_expert`: also by its matrices.
  Division rows = {}, cols = {};
  bool by_expert = false;
  // Sources, if they differ from `name` and `parts`: another layout, or several weights.
  std::vector<WeightSource> sources = {};
};

// The weight's `sources`, or {name, parts}.
std::vector<WeightSource> sources_of(const Weight& weight);

using namespace kernels::ids;  // ops of a plan: Embed, Norm, ...
using kernels::Heads;

// Concatenation of columns; no kernel: the parts are written in place.
struct Concat {
  static constexpr std::string_view kName = "concat";
  static constexpr bool kRowsIndependent = true;
  std::vector<ValueId> parts;
  ValueId out = kNone;
};

// Columns [column, column + cols of out) of x; no kernel: `out` shares x's memory.
struct Slice {
  static constexpr std::string_view kName = "slice";
  static constexpr bool kRowsIndependent = true;
  ValueId x = kNone;
  int64_t column = 0;
  ValueId out = kNone;
};
// Whether an op is one of layout: it only fixes memory.
template <class T>
inline constexpr bool kIsLayout = std::is_same_v<T, Concat> || std::is_same_v<T, Slice>;

using Op = kernels::JoinedOps<io::Op, Concat, Slice>::type;

// Weight argument of a kernel, without addresses.
kernels::WeightView shape_of(const Weight& weight);

struct Node {
  Op op;
  std::string kernel;  // set by choose_kernels; see io::Call
};

struct Graph {
  io::ModelFacts model;
  io::Mapping mapping;                 // whose rank the graph is
  std::vector<io::LayerCache> caches;  // see io::Plan
  std::vector<Value> values;
  std::vector<Weight> weights;
  std::vector<Node> nodes;                 // in order of execution
  std::vector<io::AdapterModule> modules;  // see io::Plan
  std::vector<io::ModulePart> module_parts;
  ValueId logits = kNone;
  std::vector<ValueId> hidden;     // see io::Plan; before passes, rows may be all tokens
  std::vector<ValueId> residuals;  // input of each layer, set by the family
  int64_t arena_bytes_per_row[io::kNumExtents] = {};  // set by plan_memory
};

std::string_view name_of(const Op& op);  // "embed", ..., "concat"
bool is_row_wise(const Op& op);          // kRowsIndependent

// Operands in order of declaration, without absent ones (kNone).
std::vector<ValueId> inputs(const Op& op);
std::vector<ValueId> outputs(const Op& op);
std::vector<WeightId> weights(const Op& op);
std::vector<WeightId> matrices(const Op& op);  // the weights that are matrices

// An output that reuses an input's memory: always, or only if no later node reads the input.
struct InPlace {
  ValueId in = kNone, out = kNone;
  bool always = true;
};
std::vector<InPlace> updates_in_place(const Op& op);

// Replaces each use of `from` as an input by `to`: in one op; in the graph and its outputs.
void replace_inputs(Op& op, ValueId from, ValueId to);
void replace_uses(Graph& graph, ValueId from, ValueId to);
void replace_weight(Graph& graph, WeightId from, WeightId to);

// By value: the nodes that read it, and the node that writes it (kNone: none). The plan's outputs
// are read by node number nodes.size().
struct Uses {
  std::vector<std::vector<int32_t>> readers;
  std::vector<int32_t> writer;
  std::vector<int32_t> weight_readers;  // by weight: number of nodes
};
Uses find_uses(const Graph& graph);

// Removes unused values and weights and renumbers the rest.
void sweep(Graph& graph);

// Removes the marked nodes (one flag per node), then sweeps.
void drop_nodes(Graph& graph, const std::vector<bool>& dropped);

// One line per node, for people.
std::string print(const Graph& graph);

}  // namespace nereid::graph
