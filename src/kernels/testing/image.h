// Memory of one kernel test case as a relocatable block of bytes, copied to a device, and the
// regions that a kernel must fill.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace nereid::kernels::testing {

// Offset of an array inside an image.
using Offset = size_t;

// Bytes initialised to poison (NaN as f32 and bf16), arrays aligned to 256 with a gap after each.
class Image {
 public:
  Offset add(size_t bytes);
  template <class T>
  Offset add(const std::vector<T>& values) {
    const Offset offset = add(values.size() * sizeof(T));
    std::copy(values.begin(), values.end(), at<T>(offset));
    return offset;
  }
  template <class T>
  T* at(Offset offset) {
    return reinterpret_cast<T*>(bytes.data() + offset);
  }
  template <class T>
  const T* at(Offset offset) const {
    return reinterpret_cast<const T*>(bytes.data() + offset);
  }

  std::vector<std::byte> bytes;
};

// A matrix written by the kernel. A cell is right if its bits equal the expected image's, both are
// NaN, or the difference is <= tolerance + operand_tolerance * (the device's operand rounding).
// Tolerances: one value per cell; empty = 0.
struct Region {
  std::string name;
  Offset offset = 0;
  DType dtype = DType::kF32;
  int64_t rows = 0, cols = 0, stride = 0;
  std::vector<float> tolerance;
  std::vector<float> operand_tolerance;

  Offset cell(int64_t row, int64_t col) const {
    return offset + static_cast<size_t>(row * stride + col) * size_of(dtype);
  }
};

// Value of a cell as a double.
double cell_value(const Image& image, const Region& region, int64_t row, int64_t col);

// OK if every cell of the region is right; the error names the worst cell. `worst` is raised to the
// largest error / tolerance of a right cell.
Status compare(const Image& got, const Image& want, const Region& region, double operand_epsilon,
               double* worst = nullptr);

// OK if the region's bits are equal; the error names the first cell that differs.
Status compare_bits(const Image& got, const Image& want, const Region& region);

// OK if no byte outside the regions differs from `before`.
Status compare_rest(const Image& got, const Image& before, const std::vector<Region>& regions);

// Deterministic values, roughly normal with deviation `scale`, |x| <= 3.5 scale.
std::vector<float> noise(uint64_t seed, int64_t count, float scale = 1);
std::vector<BF16> noise_bf16(uint64_t seed, int64_t count, float scale = 1);

}  // namespace nereid::kernels::testing
