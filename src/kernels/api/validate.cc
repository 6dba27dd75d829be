// Argument checks of Sample, which is not a plan op.
#include "kernels/api/validate.h"

#include <initializer_list>

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

}  // namespace

Status validate(const Sample& a) {
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
  if (a.masks && a.mask_stride < mask_words(p.vocab))
    return internal_error("sample: masks of {} words for a vocabulary of {}", a.mask_stride,
                          p.vocab);
  if (a.raw_logits.data)
    RETURN_IF_ERROR(check_view(kOp, "raw_logits", a.raw_logits, 1, p.vocab, {DType::kF32}));
  if (a.draft_logits.data)
    RETURN_IF_ERROR(check_view(kOp, "draft_logits", a.draft_logits, 1, p.vocab, {DType::kF32}));
  return check_view(kOp, "logits", a.logits, p.rows, p.vocab, {DType::kF32});
}

}  // namespace nereid::kernels
