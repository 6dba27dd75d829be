// Shared by cases of row-wise ops.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/ref/ref.h"
#include "kernels/testing/cases.h"

namespace nereid::kernels::testing {

struct RowsShape {
  int64_t tokens, width;
};

inline const RowsShape kRowsShapes[] = {{1, 1},   {1, 16},  {2, 17},   {3, 31},  {1, 256},
                                        {5, 100}, {33, 64}, {70, 130}, {4, 768}, {2, 2048}};

template <class Op>
void finish(Case<Op>& c, int64_t tokens) {
  c.tokens = tokens;
  c.after = c.before;
  reference(c.args(c.after.bytes.data(), 0, tokens));
  if (tokens > 1)
    for (int64_t size : {1, 3, 16})
      if (size < tokens) c.splits.push_back(pieces(tokens, size));
}

// tolerance = relative * |expected| for every cell.
inline void set_relative(const Image& after, Region& region, double relative) {
  for (int64_t r = 0; r < region.rows; ++r)
    for (int64_t c = 0; c < region.cols; ++c)
      region.tolerance.push_back(
          static_cast<float>(relative * std::fabs(cell_value(after, region, r, c))));
}

inline View view(std::byte* base, Offset offset, DType dtype, int64_t begin, int64_t rows,
                 int64_t cols, int64_t stride) {
  return {base + offset + begin * stride * static_cast<int64_t>(size_of(dtype)), dtype, rows, cols,
          stride};
}

inline const int32_t* ints(std::byte* base, Offset offset, int64_t begin) {
  return reinterpret_cast<const int32_t*>(base + offset) + begin;
}

template <class Op, class Make>
const std::vector<Case<Op>>& over_shapes(Make make) {
  static const std::vector<Case<Op>> all = [&] {
    std::vector<Case<Op>> list;
    for (const RowsShape& s : kRowsShapes) make(s, list);
    return list;
  }();
  return all;
}

}  // namespace nereid::kernels::testing
