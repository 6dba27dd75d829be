// Declaration of ops: one struct template over the form of its operands, with a list of fields. All
// generic code (compiler, verifier, plan check, JSON, memory planner, binding, argument checks,
// inspect) walks this list.
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
//     // Error in shapes or attributes; "": none.
//     static std::string_view check(const AddOf<Views>& a);
//     // Definition, in kernels/ref.
//     friend void reference(const AddOf<Views>& a);
//   };
//
// AddOf<Ids>: node of a graph, call of a plan. AddOf<Views>: arguments of a kernel; without
// addresses the problem of kernel selection.
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

// Storage of an [N, K] weight matrix.
enum class WeightLayout : uint8_t {
  // N rows of K numbers; 4-bit numbers in pairs, first in the low half, a row is whole bytes.
  // Scales and zero points: [N, groups].
  kRowMajor = 0,
  // ceil(N/16) panels of ceil32(K) columns, zero-padded. In a panel:
  //   bf16: ceil32(K)/2 groups of 16 rows x 2 consecutive k, the B tile of AMX and the operand of
  // vdpbf16ps; 8 bits: columns of 16 rows; 4 bits: pairs of columns of 16 rows, first column low;
  // scales and zero points: groups of 16 rows.
  kPanel16 = 1,
  // Blocks of 64 rows x 256 columns of 4-bit numbers, zero-padded, along k first; a block is one
  // piece of memory: two halves of 128 columns, of eight runs of eight rows. A run has the left
  // operands (m16k16) of the 32 lanes of a warp, 16 bytes each: lane 4 r + t has a word for each 32
  // columns of row r, with columns 2t, 2t + 8, 2t + 16, 2t + 24 in its low half, and in its high
  // half the columns behind these.
  // Exponents: blocks of 64 rows of 8 bytes.
  kFragments = 2,
};
inline constexpr WeightLayout kWeightLayouts[] = {WeightLayout::kRowMajor, WeightLayout::kPanel16,
                                                  WeightLayout::kFragments};
inline constexpr int64_t kFragmentRows = 64, kFragmentColumns = 256;  // of a block
inline constexpr int64_t kFragmentPiece = 32;                         // columns of a piece
// Blocks of a matrix [n, k].
constexpr int64_t fragment_blocks(int64_t n, int64_t k) {
  return (n + kFragmentRows - 1) / kFragmentRows * ((k + kFragmentColumns - 1) / kFragmentColumns);
}

// A matrix [n, k], or a bf16 or f32 vector of k (n = 1, row-major), by the addresses of its planes.
// For per_expert() fields: several matrices, concatenated in each plane.
struct WeightView {
  const void* data = nullptr;
  WeightLayout layout = WeightLayout::kRowMajor;
  int64_t n = 0, k = 0;
  WeightFormat format = {};
  const float* scales = nullptr;       // if the format has them
  const uint8_t* exponents = nullptr;  // kFloat4
  const uint8_t* zeros = nullptr;      // if the format has them
  const float* minima = nullptr;       // if the format has them
  const int32_t* index = nullptr;      // if the format has it; row-major [k]
  int64_t experts = 1;

  const float* as_f32() const { return static_cast<const float*>(data); }
  const BF16* as_bf16() const { return static_cast<const BF16*>(data); }
  const uint8_t* as_bytes() const { return static_cast<const uint8_t*>(data); }
};

// Error of a format in a layout, for rows of k; "": none.
std::string_view layout_error(WeightLayout layout, const WeightFormat& format, int64_t k);

inline constexpr int64_t kMaxExperts = 1024;

// Components of a position for the rotary embedding: time, height, width.
inline constexpr int32_t kPositionComponents = 3;

// RoPE angles: f32 [max_positions, cols] = cols/2 cosines, then cols/2 sines, scaling (e.g. YaRN's
// attention factor) included.
struct AnglesView {
  const float* data = nullptr;
  int64_t cols = 0;
  bool has_components = false;          // angle i is that of the position's component components[i]
  const int32_t* components = nullptr;  // [cols / 2], each in [0, kPositionComponents)
};

// Layout of a head's keys in a block.
enum class KeyLayout : uint8_t {
  kLines = 0,  // [block, d]
  // [block / 16, d / w, 16, w], w elements in 32 bits: 16 keys side by side, so that scores need no
  // transposition. Requires block % 16 == 0 and d % 4 == 0.
  kPanels = 1,
};

// A layer's KV cache and the server options that apply to it. Per block: values [kv_heads, block,
// d] of `type`, keys likewise or in panels (KeyLayout). Blocks need not be adjacent.
struct CacheView {
  void* keys = nullptr;         // of block 0
  void* values = nullptr;       // of block 0
  float* key_scales = nullptr;  // per block [kv_heads, block], for types with scales
  float* value_scales = nullptr;
  // Distance of blocks: in elements of `type`, and in scales.
  int64_t block_stride = 0, scale_stride = 0;
  int32_t block_tokens = 32;  // positions per block
  int32_t window = 0;         // the query at i attends to j > i - window; 0 = all
  int32_t sink = 0;           // attention sinks: leading positions visible beyond the window
  DType type = DType::kBF16;
  KeyLayout layout = KeyLayout::kLines;
  bool has_trees = false;  // steps may have draft trees (BatchView::after)
  bool has_last = false;   // steps may have BatchView::last
};

// Token t < kFirstEmbedding / 2: row t - kFirstEmbedding of BatchView::embeddings, no table row.
inline constexpr int32_t kFirstEmbedding = std::numeric_limits<int32_t>::min();
// Token t in [kFirstFeature, kFirstFeature / 2): row t - kFirstFeature of BatchView::features.
inline constexpr int32_t kFirstFeature = kFirstEmbedding / 2;
// Token of Embed::row_end; no feature has this index.
inline constexpr int32_t kRowEnd = kFirstFeature / 2 - 1;

// LoRA matrices of one adapter and module (Hu et al. 2021, "LoRA: Low-rank adaptation of large
// language models"): y += scale * b^T (a x) in the module's columns. With a gain (DoRA, Liu et al.
// 2024, "DoRA: Weight-decomposed low-rank adaptation"), then y += gain * y + shift. Offsets are in
// the adapters' memory.
struct LoraMatrix {
  int64_t a = 0;      // offset of a, bf16 [rank, k]; of an embedding [k, rank]
  int64_t b = 0;      // offset of b, bf16 [rank, cols]
  int64_t gain = -1;  // offset of gain and shift, bf16 [2, cols]; -1: none
  int32_t rank = 0;   // <= kMaxAdapterRank; 0: no effect
  int32_t column = 0, cols = 0;
  float scale = 0;
};
inline constexpr int32_t kMaxAdapterRank = 512;

// A row of BlendRows: the sum of weights[j] * the row of x of tokens[j].
struct BlendedRow {
  int32_t tokens[4] = {};
  float weights[4] = {};
};

// Arrays of a step in device memory.
struct BatchView {
  const int32_t* tokens = nullptr;        // [n]; < 0: slot_tokens[-1 - t] or embedding
  const int32_t* slot_tokens = nullptr;   // [slots], sampled on the device
  const int32_t* positions = nullptr;     // [n]
  const int32_t* row_of_token = nullptr;  // [n]
  const int32_t* row_begin = nullptr;     // [num_rows + 1] first token of each row
  const int32_t* block_table = nullptr;   // [num_rows, max_blocks]
  const int32_t* logit_tokens = nullptr;  // [m] tokens with logits
  const BlendedRow* blends = nullptr;     // [m] rows of BlendRows; null: none in the step
  const BF16* embeddings = nullptr;       // [num_embeddings, width of the embedding table]
  const BF16* features = nullptr;         // [num_features, feature_width]: an encoder's output
  // Components of the tokens' positions, [n, kPositionComponents]; null: each is the position.
  const int32_t* components = nullptr;
  int32_t num_rows = 0;  // rows of the step
  int32_t max_blocks = 0;
  int32_t num_embeddings = 0;
  int32_t num_features = 0;
  int32_t feature_width = 0;  // the embedding's columns, then those of AddFeatures
  // Adapters; null: none in the step.
  const int32_t* adapters = nullptr;             // [rows of the call] adapter slot, -1: none
  const LoraMatrix* adapter_matrices = nullptr;  // [adapters, num_adapter_modules]
  const BF16* adapter_weights = nullptr;
  int32_t num_adapter_modules = 0;
  // Draft trees; null: none in the step. Token i in a tree follows token i - after[i], at the next
  // position; tokens at equal positions have separate cells. Other tokens: after[i] = 0, cells[i] =
  // positions[i], and they follow all earlier cells.
  const int32_t* after = nullptr;  // [n]
  const int32_t* cells = nullptr;  // [n] cells of keys and values
  // Last position that a token attends to: at least its own, ascending within a row, whose tokens
  // have it; null: each token's own. Bidirectional attention: one for all tokens of a row, any of
  // the positions in its blocks; null: the row's last.
  const int32_t* last = nullptr;  // [n]
  // Encoder output of each row, for cross attention; null: none in the step.
  const int32_t* cross_lengths = nullptr;  // [num_rows] positions; 0: none
  const int32_t* cross_table = nullptr;    // [num_rows, max_cross_blocks]
  int32_t max_cross_blocks = 0;
  // Bits of the positions that each token attends to in cross attention, position p: bit p % 32 of
  // word p / 32; null: all of them.
  const uint32_t* cross_mask = nullptr;  // [n, cross_mask_words]
  int32_t cross_mask_words = 0;
};

// Whether cross attention of token `i` sees a position of the encoder's output.
constexpr bool sees_encoder(const BatchView& step, int64_t i, int64_t position) {
  if (!step.cross_mask) return true;
  return step.cross_mask[i * step.cross_mask_words + position / 32] >> (position % 32) & 1;
}

// Whether it sees any.
constexpr bool sees_any_key(const BatchView& step, int64_t i) {
  const int32_t length = step.cross_lengths ? step.cross_lengths[step.row_of_token[i]] : 0;
  if (!step.cross_mask) return length > 0;
  const uint32_t* const words = step.cross_mask + i * step.cross_mask_words;
  for (int32_t at = 0; at < length; at += 32) {
    const uint32_t last = length - at < 32 ? (1u << (length - at)) - 1 : ~0u;
    if ((words[at / 32] & last) != 0) return true;
  }
  return false;
}

// Cell of a position for token `i`: its ancestor's in the tree at that position, else the position.
inline int32_t cell_of(const BatchView& step, int64_t i, int32_t position) {
  if (!step.after) return position;
  while (step.after[i] > 0 && step.positions[i] > position) i -= step.after[i];
  return step.after[i] > 0 ? step.cells[i] : position;
}

// Columns [column, column + cols) of the feature that stands for token `t`; null: there is none.
inline const BF16* feature_of(const BatchView& step, int64_t t, int64_t column, int64_t cols) {
  if (t < kFirstFeature || t >= kFirstFeature / 2 || t - kFirstFeature >= step.num_features ||
      column + cols > step.feature_width)
    return nullptr;
  return step.features + (t - kFirstFeature) * step.feature_width + column;
}

// The row that stands for token `t` < kFirstFeature / 2, bf16 [width]; null: there is none.
inline const BF16* given_row(const BatchView& step, int64_t t, int64_t width) {
  if (t >= kFirstFeature) return feature_of(step, t, 0, width);
  const int64_t row = t - kFirstEmbedding;
  return row < step.num_embeddings ? step.embeddings + row * width : nullptr;
}

inline constexpr int32_t kNone = -1;

// Index in a table of a graph or plan; kNone: absent.
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
  using Angles = Id;  // index of the plan's rope table
  using Cache = Id;   // layer index
  struct Step {};
};
struct Views {
  using Value = View;
  using Weight = WeightView;
  using Angles = AnglesView;
  using Cache = CacheView;
  using Step = BatchView;
};

// Absent operands have 0 columns.
inline bool is_given(const View& v) { return v.cols > 0; }
inline bool is_given(const WeightView& w) { return w.k > 0; }
inline bool is_given(const AnglesView& a) { return a.cols > 0; }
inline bool is_given(Id id) { return id != kNone; }

enum class Role : uint8_t { kIn, kOut, kMatrix, kVector, kAngles, kCache, kStep, kAttribute };

// Number of an operand's rows: as the first output, the step's tokens, or the sampled rows.
enum class OutputRows : uint8_t { kSame, kTokens, kSampled };

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
  OutputRows rows = OutputRows::kSame;
  bool optional = false;
  bool has_experts = false;           // a weight [experts, n, k]; others have one expert
  bool is_exact = false;              // f32 vector; others are bf16
  std::string_view replaces = {};     // input whose memory this output always reuses, if given
  std::string_view may_replace = {};  // same, if the input has no later reader

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
  constexpr Field of(OutputRows r) const {
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
// A layer's KV cache; kernels of such ops are chosen when the plan is bound, by options.
template <class M>
constexpr Field<Role::kCache, M> cache(std::string_view name, M member) {
  return {name, member};
}
// The step's arrays; absent in a plan.
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

// An op's field list, built at compile time.
template <class Op>
inline constexpr auto kFields = Op::fields();

// Calls f(field, operand) for each field in order of declaration. Op may be const.
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

// Counts an aggregate's members by the number of initialisers that it accepts.
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

// Rows of a kernel call: those of the first output, or without outputs of the first input.
template <class Op>
int64_t rows_of(const Op& op) {
  constexpr Role kOf = has_role<Op, Role::kOut>() ? Role::kOut : Role::kIn;
  int64_t rows = -1;
  for_fields(op, [&](const auto& field, const auto& operand) {
    if constexpr (std::remove_cvref_t<decltype(field)>::kRole == kOf)
      if (rows < 0) rows = operand.rows;
  });
  return rows;
}

// Sets the rows of all operands; `tokens`: for OutputRows::kTokens.
template <class Op>
void set_rows(Op& op, int64_t rows, int64_t tokens) {
  for_fields(op, [&](const auto& field, auto& operand) {
    using Operand = std::remove_cvref_t<decltype(operand)>;
    if constexpr (std::is_same_v<Operand, View>)
      operand.rows = field.rows == OutputRows::kTokens ? tokens : rows;
  });
}

// The op with operands resolved by source.value(Id) -> View, source.weight(Id) -> WeightView,
// source.angles(Id) -> AnglesView, source.cache(Id layer, const Op&) -> CacheView; attributes are
// copied, step arrays stay empty. Absent operands stay absent; all ids must exist.
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
