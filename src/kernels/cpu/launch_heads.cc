// Divides HeadLinear into heads and blocks of rows.
#include <algorithm>

#include "kernels/api/pack.h"
#include "kernels/api/validate.h"
#include "kernels/cpu/launch.h"
#include "kernels/cpu/scratch.h"

namespace nereid::kernels::cpu {
namespace {

constexpr int64_t kHeadRows = 64;            // rows converted and multiplied at a time
constexpr int64_t kSmallHeadWork = 1 << 16;  // below this many multiply-adds one thread is faster

float value_at(const View& x, int64_t row, int64_t col) {
  return x.dtype == DType::kBF16 ? to_float(x.row<BF16>(row)[col]) : x.row<float>(row)[col];
}

// Rows [begin, begin + count) of a head: kept columns are copied to out, the others, rounded to
// bf16, to the multiplied lines.
void split_pieces(const HeadLinear& a, int64_t head, int64_t begin, int64_t count, int64_t stride,
                  float* lines) {
  const int64_t from = head * (a.kept + a.weight.k), to = head * (a.kept + a.weight.n);
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t c = 0; c < a.kept; ++c) {
      const float x = value_at(a.x, begin + r, from + c);
      if (a.out.dtype == DType::kBF16)
        a.out.row<BF16>(begin + r)[to + c] = to_bf16(x);
      else
        a.out.row<float>(begin + r)[to + c] = x;
    }
    float* const line = lines + r * stride;
    for (int64_t c = 0; c < a.weight.k; ++c)
      line[c] = to_float(to_bf16(value_at(a.x, begin + r, from + a.kept + c)));
    if (a.weight.k % 2 != 0) line[a.weight.k] = 0;
  }
}

Status launch_head_linear(const Raw& raw, const HeadLinear& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const int64_t heads = a.weight.experts, rows = a.out.rows, n = a.weight.n, k = a.weight.k;
  const int64_t blocks = (rows + kHeadRows - 1) / kHeadRows, stride = (k + 1) / 2 * 2 + 32;
  const int64_t floats = std::min(rows, kHeadRows) * stride;  // per thread
  const auto size = static_cast<int64_t>(size_of(a.out.dtype));
  thread_local Scratch scratch;
  ASSIGN_OR_RETURN(void* const memory,
                   scratch.get(static_cast<size_t>(pool.num_threads() * floats) * sizeof(float)));
  const auto work = [&](int64_t begin, int64_t end, int thread) {
    float* const lines = static_cast<float*>(memory) + thread * floats;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t head = item / blocks, row = item % blocks * kHeadRows;
      const int64_t count = std::min(kHeadRows, rows - row);
      split_pieces(a, head, row, count, stride, lines);
      const int64_t first = row * a.out.stride + head * (a.kept + n) + a.kept;
      const LinearRaw product = {
          .x = lines,
          .x_stride = stride,
          .weight = static_cast<const uint16_t*>(a.weight.data) +
                    head * num_panels(n) * panel_elements(k),
          .panel_stride = panel_elements(k),
          .k = k,
          .out = static_cast<std::byte*>(a.out.data) + first * size,
          .out_stride = a.out.stride,
          .n = n,
          .out_bf16 = a.out.dtype == DType::kBF16,
      };
      raw.linear(product, 0, count, 0, num_panels(n));
    }
  };
  if (rows * heads * n * k <= kSmallHeadWork)
    work(0, heads * blocks, 0);
  else
    pool.parallel_for(heads * blocks, 1, work);
  return ok();
}

}  // namespace

template <>
Table<HeadLinear> table<HeadLinear>() {
  return vectors<HeadLinear, launch_head_linear, has_panels<HeadLinear>>();
}

}  // namespace nereid::kernels::cpu
