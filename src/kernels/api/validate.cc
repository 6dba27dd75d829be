// Argument checks of the op contracts.
#include "kernels/api/validate.h"

#include <initializer_list>

#include "kernels/api/keys.h"

namespace nereid::kernels {
namespace {

Status check_view(std::string_view op, std::string_view name, const View& v, int64_t rows,
                  int64_t cols, std::initializer_list<DType> dtypes) {
  bool dtype_ok = false;
  for (DType t : dtypes) dtype_ok |= v.dtype == t;
  if (v.data && dtype_ok && v.rows >= rows && v.cols == cols && v.stride >= cols) return ok();
  return internal_error("{}: '{}' is {} [{}, {}] stride {}{}, wanted {} [{}, {}]", op, name,
                        name_of(v.dtype), v.rows, v.cols, v.stride, v.data ? "" : " without data",
                        name_of(*dtypes.begin()), rows, cols);
}

Status check_pointer(std::string_view op, std::string_view name, const void* p) {
  return p ? ok() : internal_error("{}: '{}' is missing", op, name);
}

Status check_positive(std::string_view op, std::initializer_list<int64_t> sizes) {
  for (int64_t size : sizes)
    if (size <= 0) return internal_error("{}: a size is {}", op, size);
  return ok();
}

Status check_weight(std::string_view op, const WeightView& w, int64_t n, int64_t k,
                    WeightLayout layout) {
  if (w.data && w.n == n && w.k == k && w.layout == layout) return ok();
  return internal_error("{}: weight is [{}, {}] layout {}{}, wanted [{}, {}] layout {}", op, w.n,
                        w.k, static_cast<int>(w.layout), w.data ? "" : " without data", n, k,
                        static_cast<int>(layout));
}

}  // namespace

Status validate(const Embed::Args& a) {
  const Embed::Problem& p = a.problem;
  RETURN_IF_ERROR(check_positive(Embed::kName, {p.tokens, p.vocab, p.hidden}));
  RETURN_IF_ERROR(check_pointer(Embed::kName, "tokens", a.tokens));
  RETURN_IF_ERROR(check_weight(Embed::kName, a.table, p.vocab, p.hidden, p.layout));
  return check_view(Embed::kName, "out", a.out, p.tokens, p.hidden, {DType::kF32});
}

Status validate(const Norm::Args& a) {
  const Norm::Problem& p = a.problem;
  RETURN_IF_ERROR(check_positive(Norm::kName, {p.tokens, p.hidden}));
  RETURN_IF_ERROR(check_pointer(Norm::kName, "weight", a.weight));
  RETURN_IF_ERROR(
      check_view(Norm::kName, "residual", a.residual, p.tokens, p.hidden, {DType::kF32}));
  if (p.has_add)
    RETURN_IF_ERROR(check_view(Norm::kName, "add", a.add, p.tokens, p.hidden, {DType::kF32}));
  if (p.out != DType::kF32 && p.out != DType::kBF16)
    return internal_error("norm: output type {} is not f32 or bf16", name_of(p.out));
  return check_view(Norm::kName, "out", a.out, p.tokens, p.hidden, {p.out});
}

Status validate(const Linear::Args& a) {
  const Linear::Problem& p = a.problem;
  RETURN_IF_ERROR(check_positive(Linear::kName, {p.tokens, p.n, p.k}));
  RETURN_IF_ERROR(check_weight(Linear::kName, a.weight, p.n, p.k, p.layout));
  if (p.has_bias) RETURN_IF_ERROR(check_pointer(Linear::kName, "bias", a.bias));
  RETURN_IF_ERROR(check_view(Linear::kName, "x", a.x, p.tokens, p.k, {DType::kBF16}));
  if (p.out != DType::kF32 && p.out != DType::kBF16)
    return internal_error("linear: output type {} is not f32 or bf16", name_of(p.out));
  return check_view(Linear::kName, "out", a.out, p.tokens, p.n, {p.out});
}

Status validate(const Rope::Args& a) {
  const Rope::Problem& p = a.problem;
  RETURN_IF_ERROR(check_positive(Rope::kName, {p.tokens, p.num_heads, p.num_kv_heads, p.head_dim}));
  if (p.head_dim % 2) return internal_error("rope: head_dim {} is odd", p.head_dim);
  RETURN_IF_ERROR(check_pointer(Rope::kName, "positions", a.positions));
  RETURN_IF_ERROR(check_pointer(Rope::kName, "table", a.table));
  const int64_t width = (p.num_heads + 2 * p.num_kv_heads) * int64_t{p.head_dim};
  return check_view(Rope::kName, "qkv", a.qkv, p.tokens, width, {DType::kF32});
}

Status validate(const Attention::Args& a) {
  constexpr std::string_view kOp = Attention::kName;
  const Attention::Problem& p = a.problem;
  RETURN_IF_ERROR(check_positive(kOp, {p.tokens, p.num_heads, p.num_kv_heads, p.head_dim,
                                       p.block_tokens, a.num_rows, a.max_blocks, a.max_length}));
  if (p.num_heads % p.num_kv_heads || p.head_dim % 2 || p.window < 0 || p.sink < 0)
    return internal_error("attention: heads {} / {}, head_dim {}, window {}, sink {}", p.num_heads,
                          p.num_kv_heads, p.head_dim, p.window, p.sink);
  if (p.kv != DType::kBF16 && !has_kv_scales(p.kv))
    return internal_error("attention: a cache of type {}", name_of(p.kv));
  if (p.keys == KeyLayout::kPanels && !make_panels(p.head_dim, p.block_tokens))
    return internal_error("attention: blocks of {} tokens and head_dim {} do not make panels",
                          p.block_tokens, p.head_dim);
  if (has_kv_scales(p.kv)) {
    RETURN_IF_ERROR(check_pointer(kOp, "k_scales", a.k_scales));
    RETURN_IF_ERROR(check_pointer(kOp, "v_scales", a.v_scales));
  }
  if (p.has_rope) RETURN_IF_ERROR(check_pointer(kOp, "rope_table", a.rope_table));
  RETURN_IF_ERROR(check_pointer(kOp, "k_cache", a.k_cache));
  RETURN_IF_ERROR(check_pointer(kOp, "v_cache", a.v_cache));
  RETURN_IF_ERROR(check_pointer(kOp, "positions", a.positions));
  RETURN_IF_ERROR(check_pointer(kOp, "row_begin", a.row_begin));
  RETURN_IF_ERROR(check_pointer(kOp, "row_of_token", a.row_of_token));
  RETURN_IF_ERROR(check_pointer(kOp, "block_table", a.block_table));
  const int64_t width = (p.num_heads + 2 * p.num_kv_heads) * int64_t{p.head_dim};
  RETURN_IF_ERROR(check_view(kOp, "qkv", a.qkv, p.tokens, width, {DType::kF32}));
  return check_view(kOp, "out", a.out, p.tokens, p.num_heads * int64_t{p.head_dim}, {DType::kBF16});
}

Status validate(const Glu::Args& a) {
  const Glu::Problem& p = a.problem;
  RETURN_IF_ERROR(check_positive(Glu::kName, {p.tokens, p.width}));
  RETURN_IF_ERROR(check_view(Glu::kName, "x", a.x, p.tokens, 2 * p.width, {DType::kF32}));
  return check_view(Glu::kName, "out", a.out, p.tokens, p.width, {DType::kBF16});
}

Status validate(const Add::Args& a) {
  const Add::Problem& p = a.problem;
  RETURN_IF_ERROR(check_positive(Add::kName, {p.tokens, p.width}));
  RETURN_IF_ERROR(check_view(Add::kName, "x", a.x, p.tokens, p.width, {DType::kF32}));
  return check_view(Add::kName, "y", a.y, p.tokens, p.width, {DType::kF32});
}

Status validate(const GatherRows::Args& a) {
  const GatherRows::Problem& p = a.problem;
  RETURN_IF_ERROR(check_positive(GatherRows::kName, {p.rows, p.width}));
  RETURN_IF_ERROR(check_pointer(GatherRows::kName, "rows", a.rows));
  RETURN_IF_ERROR(check_view(GatherRows::kName, "x", a.x, 1, p.width, {DType::kF32}));
  return check_view(GatherRows::kName, "out", a.out, p.rows, p.width, {DType::kF32});
}

Status validate(const Sample::Args& a) {
  constexpr std::string_view kOp = Sample::kName;
  const Sample::Problem& p = a.problem;
  RETURN_IF_ERROR(check_positive(kOp, {p.rows, p.vocab}));
  RETURN_IF_ERROR(check_pointer(kOp, "rows", a.rows));
  RETURN_IF_ERROR(check_pointer(kOp, "params", a.params));
  RETURN_IF_ERROR(check_pointer(kOp, "results", a.results));
  if (a.top_stride < 0 || a.top_stride > kMaxTopTokens || (a.top_stride > 0 && !a.top))
    return internal_error("sample: top list of {}{}", a.top_stride, a.top ? "" : " without data");
  if (a.history && a.history_stride <= 0)
    return internal_error("sample: history of {} positions", a.history_stride);
  if (a.raw_logits.data)
    RETURN_IF_ERROR(check_view(kOp, "raw_logits", a.raw_logits, 1, p.vocab, {DType::kF32}));
  return check_view(kOp, "logits", a.logits, p.rows, p.vocab, {DType::kF32});
}

}  // namespace nereid::kernels
