// Rounding of bf16 matrices to integers and fp8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/api/op.h"

namespace nereid::kernels {

// Planes of a rounded matrix.
struct QuantizedPlanes {
  std::vector<uint8_t> data;
  std::vector<float> scales;
  std::vector<uint8_t> exponents;  // kFloat4, in place of scales
  std::vector<uint8_t> zeros;      // empty: none in the format
  std::vector<float> minima;       // empty: none in the format

  WeightView view(const WeightFormat& format, WeightLayout layout, int64_t n, int64_t k) const {
    WeightView view{data.data(), layout, n, k, format, scales.data()};
    view.exponents = exponents.data();
    if (format.zeros) view.zeros = zeros.data();
    if (format.minima) view.minima = minima.data();
    return view;
  }
};

// Zeroed planes of a matrix [n, k].
QuantizedPlanes empty_planes(const WeightFormat& format, WeightLayout layout, int64_t n, int64_t k);

// Rounds a row to f8e4m3 numbers (or bytes) and returns the scale, see QuantizeOf in row_ops.h.
// `stored` is as long as the row.
float quantize_row(std::span<const BF16> row, F8E4M3* stored);
float quantize_row(std::span<const BF16> row, int8_t* stored);

// Rounds matrix [rows, k], row-major, to fp8, MXFP4 or an integer format without column order. In
// panel layouts, whole panels are pieces of the packed whole.
//   f8e4m3: scale, of kF8Scales candidates from largest magnitude / 448 to nearly twice that, the
//   one
// with the least squared error, first of equals (slower than quantize_row(), for builds).
//   Integers: nearest to x / scale, by group. With zero points or minima: scale = (largest -
// smallest) / (2^bits - 1) over the group and 0; else 8 bits: largest magnitude / 127; 4 bits:
// number of largest magnitude / -8, which becomes -8. Error <= scale / 2 (with zero points, or 4
// bits without: scale).
//   MXFP4: e is the exponent of the largest magnitude less 2, at least 0. Numbers are rounded to
//   the
// nearest, ties to even; larger ones become 6.
// InvalidArgument: another format, a number that is not finite, or e > kMaxExponent.
Status quantize(const WeightFormat& format, WeightLayout layout, std::span<const BF16> matrix,
                int64_t k, QuantizedPlanes& out);

}  // namespace nereid::kernels
