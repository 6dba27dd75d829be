// Encoded matrices: integers in groups with scales, block formats, fp8 with scales, table lookups.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/api/weight_format.h"

namespace nereid::io {

// Scale and offset of a group of columns, as in WeightFormat; fp8: scale only.
struct CodeGroup {
  float scale = 0;
  int32_t zero = 0;
  float minimum = 0;
};

// Immutable; its bytes are in the tensor's file mapping. Rows: all dimensions but the last. The
// creator has checked the number of bytes.
class Encoding {
 public:
  virtual ~Encoding() = default;

  // out[i] = number at (row + i * row_step, col + i * col_step), within the matrix.
  virtual void read(int64_t row, int64_t col, int64_t row_step, int64_t col_step,
                    std::span<float> out) const = 0;

  // Engine format that can store the codes unchanged (pass through); nullopt: none. The next two
  // functions are for such formats. MXFP4: e2m1 numbers, and groups with scale 2^(e - 127).
  virtual std::optional<kernels::WeightFormat> format() const { return {}; }
  virtual uint8_t code(int64_t /*row*/, int64_t /*col*/) const { return 0; }
  virtual CodeGroup group(int64_t /*row*/, int64_t /*group*/) const { return {}; }
};

// Base class for a T with `float at(int64_t row, int64_t col) const`.
template <class T>
class EncodingOf : public Encoding {
 public:
  void read(int64_t row, int64_t col, int64_t row_step, int64_t col_step,
            std::span<float> out) const final {
    for (float& x : out) {
      x = static_cast<const T&>(*this).at(row, col);
      row += row_step, col += col_step;
    }
  }
};

// Twice the value of an e2m1 number (sign, 2 exponent bits, 1 mantissa bit), an integer. Source:
// OCP Microscaling Formats 1.0.
constexpr int32_t twice_e2m1(uint8_t bits) {
  constexpr int8_t kTwice[] = {0, 1, 2, 3, 4, 6, 8, 12};
  return bits & 8 ? -kTwice[bits & 7] : kTwice[bits & 7];
}

// 2^exponent, exponent >= -149.
inline float power_of_two(int32_t exponent) { return std::ldexp(1.0f, exponent); }

}  // namespace nereid::io
