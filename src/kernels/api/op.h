// How an op is declared: one struct template over the form of its operands, and one list of its
// fields. Everything that walks ops (compiler, verifier, plan check, JSON, memory planner, binding,
// argument checks, inspect) is written once over that list.
//
//   template <class F>
//   struct AddOf {
//     static constexpr std::string_view kName = "add";
//     static constexpr bool kRowsIndependent = true;
//     typename F::Value x, y, out;
//     static constexpr auto fields() {
//       return std::tuple(in("x", &AddOf::x, {DType::kF32}), in("y", &AddOf::y, {DType::kF32}),
//                         kernels::out("out", &AddOf::out, {DType::kF32}).in_place_of("x"));
//     }
//     static std::string_view check(const AddOf<Views>& a);  // what is wrong with shapes and
//     attributes friend void reference(const AddOf<Views>& a);          // the definition, in
//     kernels/ref
//   };
//
// AddOf<Ids> is a node of a graph and a call of a plan; AddOf<Views> is what a kernel gets, and,
// without addresses, what kernel selection looks at.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/api/weight_format.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace nereid::kernels {

// How a [N, K] weight matrix is stored.
enum class WeightLayout : uint8_t {
  // N rows of K numbers, two of four bits in a byte (the first one low; a row is whole bytes); a
  // row of scales or zero points has one for each group.
  kRowMajor = 0,
  // ceil(N/16) panels of ceil32(K) columns, rows and columns past N and K zero. In a panel:
  //   bf16: ceil32(K)/2 groups of 16 rows x 2 consecutive k, the B tile of AMX and the operand of
  //   vdpbf16ps; 8 bits: columns of 16 rows; 4 bits: pairs of columns of 16 rows, the first column
  //   low; scales and zero points: groups of 16 rows.
  kPanel16 = 1,
};

// A matrix [n, k], or a bf16 or f32 vector of k (n = 1, row-major), and the addresses of its
// planes. Several, one stored behind the other in each plane, where an op's field is per_expert().
struct WeightView {
  const void* data = nullptr;
  WeightLayout layout = WeightLayout::kRowMajor;
  int64_t n = 0, k = 0;
  WeightFormat format = {};
  const float* scales = nullptr;   // where the format has them
  const uint8_t* zeros = nullptr;  // likewise
  const float* minima = nullptr;   // likewise
  const int32_t* index = nullptr;  // likewise; row-major [k]
  int64_t experts = 1;

  const float* as_f32() const { return static_cast<const float*>(data); }
  const BF16* as_bf16() const { return static_cast<const BF16*>(data); }
  const uint8_t* as_bytes() const { return static_cast<const uint8_t*>(data); }
};

inline constexpr int64_t kMaxExperts = 1024;

// Angles of rotary embedding: f32 [max_positions, cols] = cols/2 cosines, then cols/2 sines
// (scaling such as YaRN's attention factor included).
struct AnglesView {
  const float* data = nullptr;
  int64_t cols = 0;
};

// How the keys of a block's head lie.
enum class KeyLayout : uint8_t {
  kLines = 0,  // [block, d]
  // [block / 16, d / w, 16, w], w elements in 32 bits: sixteen keys side by side, so that a vector
  // of a query's scores takes no transposition. For blocks of a multiple of 16 positions and a d
  // that is a multiple of 4.
  kPanels = 1,
};

// One layer's part of the KV cache and the options of the server that concern it. A block's values
// are [kv_heads, block, d] of `type`, its keys likewise or in panels (KeyLayout); the blocks need
// not follow each other.
struct CacheView {
  void* keys = nullptr;         // of block 0
  void* values = nullptr;       // likewise
  float* key_scales = nullptr;  // a block's are [kv_heads, block], for the types that have scales
  float* value_scales = nullptr;
  // From one block to the next: in elements of `type`, and in scales.
  int64_t block_stride = 0, scale_stride = 0;
  int32_t block_tokens = 32;  // positions per block
  int32_t window = 0;         // the query at i sees j > i - window; 0 = all
  int32_t sink = 0;           // leading positions that stay visible beyond the window
  DType type = DType::kBF16;
  KeyLayout layout = KeyLayout::kLines;
  bool has_trees = false;  // steps may have StepView::after
};

// A token t < kFirstEmbedding / 2 is no id: row t - kFirstEmbedding of StepView::embeddings stands
// in place of its row of the table.
inline constexpr int32_t kFirstEmbedding = std::numeric_limits<int32_t>::min();

// What one adapter (LoRA, Hu et al. 2021, "LoRA: Low-rank adaptation of large language models")
// adds to a part of a product's columns: y += scale * b^T (a x). With a gain (DoRA, Liu et al.
// 2024, "DoRA: Weight-decomposed low-rank adaptation") these columns become y + gain * y + shift
// then. In the adapters' memory.
struct AdapterMatrix {
  int64_t a = 0;      // first element of a, bf16 [rank, k]; of a table of tokens [k, rank]
  int64_t b = 0;      // of b, bf16 [rank, cols]
  int64_t gain = -1;  // of gain and, behind it, shift, bf16 [2, cols]; -1: there is none
  int32_t rank = 0;   // at most kMaxAdapterRank; 0: it adds nothing
  int32_t column = 0, cols = 0;
  float scale = 0;
};
inline constexpr int32_t kMaxAdapterRank = 512;

// The arrays of one step, in device memory.
struct StepView {
  const int32_t* tokens = nullptr;        // [n]; t < 0: slot_tokens[-1 - t], or an embedding
  const int32_t* slot_tokens = nullptr;   // [slots], drawn by the step before, host unaware
  const int32_t* positions = nullptr;     // [n]
  const int32_t* row_of_token = nullptr;  // [n]
  const int32_t* row_begin = nullptr;     // [num_rows + 1] first token of each sequence
  const int32_t* block_table = nullptr;   // [num_rows, max_blocks]
  const int32_t* logit_tokens = nullptr;  // [m] tokens whose logits are wanted
  const BF16* embeddings = nullptr;       // [num_embeddings, width of the embedding table]
  int32_t num_rows = 0;                   // sequences in this step
  int32_t max_blocks = 0;
  int32_t num_embeddings = 0;
  // Adapters; null where no row of the step has one.
  const int32_t* adapters = nullptr;  // [rows of the call] where each row's adapter is, -1: none
  const AdapterMatrix* adapter_matrices = nullptr;  // [adapters, num_adapter_modules]
  const BF16* adapter_weights = nullptr;
  int32_t num_adapter_modules = 0;
  // Tokens in trees; null where no row of the step has any. Such a token comes after the token of
  // the step that is after[i] before it, at the position behind it; those at one position lie in
  // cells of their own. Other tokens have after[i] = 0 and cells[i] = positions[i], and come after
  // all that lies in the cells before theirs.
  const int32_t* after = nullptr;  // [n]
  const int32_t* cells = nullptr;  // [n] in place of positions, where keys and values are kept
};

// Where the key and value that token `i` sees at a position lie in its sequence: in the cell of one
// of the tokens that it comes after, or that of the position.
inline int32_t cell_of(const StepView& step, int64_t i, int32_t position) {
  if (!step.after) return position;
  while (step.after[i] > 0 && step.positions[i] > position) i -= step.after[i];
  return step.after[i] > 0 ? step.cells[i] : position;
}

inline constexpr int32_t kNone = -1;

// An index in a table of a graph or plan; kNone: absent.
struct Id {
  int32_t index = kNone;
  constexpr Id() = default;
  constexpr Id(int32_t i) : index(i) {}
  constexpr operator int32_t() const { return index; }
};

// Forms of an op's operands.
struct Ids {
  using Value = Id;
  using Weight = Id;
  using Angles = Id;  // of the plan's rotary tables
  using Cache = Id;   // the layer
  struct Step {};
};
struct Views {
  using Value = View;
  using Weight = WeightView;
  using Angles = AnglesView;
  using Cache = CacheView;
  using Step = StepView;
};

// Absent operands have no columns.
inline bool is_given(const View& v) { return v.cols > 0; }
inline bool is_given(const WeightView& w) { return w.k > 0; }
inline bool is_given(const AnglesView& a) { return a.cols > 0; }
inline bool is_given(Id id) { return id != kNone; }

enum class Role : uint8_t { kIn, kOut, kMatrix, kVector, kAngles, kCache, kStep, kAttribute };

// Which rows an operand has: as many as the op's first output, the step's tokens, or the sampled
// rows.
enum class Rows : uint8_t { kSame, kTokens, kSampled };

struct DTypes {
  DType types[3] = {};
  int count = 0;
  constexpr DTypes(std::initializer_list<DType> list) {
    for (const DType t : list) types[count++] = t;
  }
  constexpr bool has(DType t) const {
    for (int i = 0; i < count; ++i)
      if (types[i] == t) return true;
    return false;
  }
};

template <Role kTheRole, class Member>
struct Field {
  static constexpr Role kRole = kTheRole;
  std::string_view name;
  Member member;
  DTypes types = {};
  Rows rows = Rows::kSame;
  bool optional = false;
  bool has_experts = false;           // a weight [experts, n, k]; others have one expert
  bool is_exact = false;              // a vector of f32 numbers; others are bf16
  std::string_view replaces = {};     // the input whose memory this output takes over, when given
  std::string_view may_replace = {};  // likewise, but only where nobody reads the input later

  constexpr Field maybe() const {
    Field f = *this;
    f.optional = true;
    return f;
  }
  constexpr Field per_expert() const {
    Field f = *this;
    f.has_experts = true;
    return f;
  }
  constexpr Field exact() const {
    Field f = *this;
    f.is_exact = true;
    return f;
  }
  constexpr Field of(Rows r) const {
    Field f = *this;
    f.rows = r;
    return f;
  }
  constexpr Field in_place_of(std::string_view input) const {
    Field f = *this;
    f.replaces = input;
    return f;
  }
  constexpr Field may_be_in_place_of(std::string_view input) const {
    Field f = *this;
    f.may_replace = input;
    return f;
  }
};

template <class M>
constexpr Field<Role::kIn, M> in(std::string_view name, M member, DTypes types) {
  return {name, member, types};
}
template <class M>
constexpr Field<Role::kOut, M> out(std::string_view name, M member, DTypes types) {
  return {name, member, types};
}
// A weight matrix [n, k].
template <class M>
constexpr Field<Role::kMatrix, M> matrix(std::string_view name, M member) {
  return {name, member};
}
// A weight vector.
template <class M>
constexpr Field<Role::kVector, M> vector(std::string_view name, M member) {
  return {name, member};
}
template <class M>
constexpr Field<Role::kAngles, M> angles(std::string_view name, M member) {
  return {name, member};
}
// The KV cache of a layer; a kernel of such an op is chosen when the plan is bound, since it
// depends on options of the server.
template <class M>
constexpr Field<Role::kCache, M> cache(std::string_view name, M member) {
  return {name, member};
}
// The arrays of the step; in a plan there is nothing of it.
template <class M>
constexpr Field<Role::kStep, M> step(M member) {
  return {"step", member};
}
template <class M>
constexpr Field<Role::kAttribute, M> attribute(std::string_view name, M member) {
  return {name, member};
}

// The same op in another form.
template <class Op, class F>
struct InForm;
template <template <class> class Op, class From, class F>
struct InForm<Op<From>, F> {
  using type = Op<F>;
};
template <class Op, class F>
using in_form = typename InForm<Op, F>::type;

// An op's list, made once by the compiler and not in every walk.
template <class Op>
inline constexpr auto kFields = Op::fields();

// Calls f(field, operand) for every field in the order of declaration. Op may be const.
template <class Op, class F>
constexpr void for_fields(Op& op, F&& f) {
  std::apply([&](const auto&... field) { (f(field, op.*(field.member)), ...); },
             kFields<std::remove_const_t<Op>>);
}

// Calls f(field, operand of a, operand of b) for two forms of one op.
template <class A, class B, class F>
constexpr void for_field_pairs(A& a, B& b, F&& f) {
  constexpr auto of_a = std::remove_const_t<A>::fields();
  constexpr auto of_b = std::remove_const_t<B>::fields();
  [&]<size_t... I>(std::index_sequence<I...>) {
    (f(std::get<I>(of_a), a.*(std::get<I>(of_a).member), b.*(std::get<I>(of_b).member)), ...);
  }
  (std::make_index_sequence<std::tuple_size_v<decltype(of_a)>>());
}

template <class Op, Role kRole>
constexpr bool has_role() {
  return std::apply(
      [](const auto&... field) {
        return ((std::remove_cvref_t<decltype(field)>::kRole == kRole) || ...);
      },
      Op::fields());
}

// Members of an aggregate, counted by how many initialisers it takes.
struct AnyMember {
  template <class T>
  constexpr operator T() const;
};
template <class T, class... Members>
constexpr size_t num_members() {
  if constexpr (requires { T{Members{}..., AnyMember{}}; })
    return num_members<T, Members..., AnyMember>();
  else
    return sizeof...(Members);
}

// Whether fields() lists every member.
template <class Op>
constexpr bool lists_all_members() {
  return std::tuple_size_v<decltype(Op::fields())> == num_members<Op>();
}

// Rows of a kernel's call: those of its first output.
template <class Op>
int64_t rows_of(const Op& op) {
  int64_t rows = -1;
  for_fields(op, [&](const auto& field, const auto& operand) {
    if constexpr (std::remove_cvref_t<decltype(field)>::kRole == Role::kOut)
      if (rows < 0) rows = operand.rows;
  });
  return rows;
}

// Sets the rows of every operand; `tokens`: those of operands with Rows::kTokens.
template <class Op>
void set_rows(Op& op, int64_t rows, int64_t tokens) {
  for_fields(op, [&](const auto& field, auto& operand) {
    using Operand = std::remove_cvref_t<decltype(operand)>;
    if constexpr (std::is_same_v<Operand, View>)
      operand.rows = field.rows == Rows::kTokens ? tokens : rows;
  });
}

// The op with its operands looked up: source.value(Id) -> View, source.weight(Id) -> WeightView,
// source.angles(Id) -> AnglesView, source.cache(Id layer, const Op&) -> CacheView; attributes are
// copied, the step's arrays left out. Absent operands stay absent; all ids must exist.
template <class Op, class Source>
in_form<Op, Views> look_up(const Op& op, const Source& source) {
  in_form<Op, Views> found;
  for_field_pairs(op, found, [&](const auto& field, const auto& from, auto& to) {
    constexpr Role kRole = std::remove_cvref_t<decltype(field)>::kRole;
    if constexpr (kRole == Role::kAttribute) {
      to = from;
    } else if constexpr (kRole != Role::kStep) {
      if (!is_given(from)) return;
      if constexpr (kRole == Role::kIn || kRole == Role::kOut) to = source.value(from);
      if constexpr (kRole == Role::kMatrix || kRole == Role::kVector) to = source.weight(from);
      if constexpr (kRole == Role::kAngles) to = source.angles(from);
      if constexpr (kRole == Role::kCache) to = source.cache(from, op);
    }
  });
  return found;
}

}  // namespace nereid::kernels
