// Rounding of bf16 matrices to integers and to fp8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/api/op.h"

namespace nereid::kernels {

// The planes of a rounded matrix.
struct QuantizedPlanes {
  std::vector<uint8_t> data;
  std::vector<float> scales;
  std::vector<uint8_t> zeros;  // empty where the format has none
  std::vector<float> minima;   // likewise

  WeightView view(const WeightFormat& format, WeightLayout layout, int64_t n, int64_t k) const {
    WeightView view{data.data(), layout, n, k, format, scales.data()};
    if (format.zeros) view.zeros = zeros.data();
    if (format.minima) view.minima = minima.data();
    return view;
  }
};

// Those of a matrix [n, k], all zeros.
QuantizedPlanes empty_planes(const WeightFormat& format, WeightLayout layout, int64_t n, int64_t k);

// f8e4m3 numbers (or bytes) of a row and what they are multiplied with to stand for it, see
// QuantizeOf in row_ops.h. `stored` is as long as the row.
float quantize_row(std::span<const BF16> row, F8E4M3* stored);
float quantize_row(std::span<const BF16> row, int8_t* stored);

// Rows of a matrix [rows, k], row-major, in fp8 or in an integer format without an order of
// columns. f8e4m3 numbers have the scale, of eight from largest magnitude / 448 to nearly twice
// that, with the least sum of squared errors, the first of equals: what a build rounds may take
// longer than quantize_row(). A group's integers are the nearest to x / scale. With zero points or
// minima scale = (largest - smallest) / (2^bits - 1) over the group's numbers and 0; without them,
// of 8 bits, the largest magnitude / 127; of 4 bits the number of largest magnitude / -8, so that
// it becomes -8. Each number is off by at most scale / 2 (with zero points, or 4 bits without:
// scale). Where a layout has panels, whole panels are pieces of the packed whole. InvalidArgument
// for another format or a number that is not finite.
Status quantize(const WeightFormat& format, WeightLayout layout, std::span<const BF16> matrix,
                int64_t k, QuantizedPlanes& out);

}  // namespace nereid::kernels
