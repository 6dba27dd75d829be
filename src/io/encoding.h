// Numbers of a matrix that a file does not keep one by one: integers in groups with scales, blocks,
// fp8 with scales, four bits that stand for a row of a table.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/api/weight_format.h"

namespace nereid::io {

// What the integers of one group of columns stand for, as WeightFormat has it; of fp8 the scale.
struct CodeGroup {
  float scale = 0;
  int32_t zero = 0;
  float minimum = 0;
};

// Immutable; its bytes lie in the mapping of the tensor's file. Rows are all dimensions but the
// last. Whoever makes one has checked that the bytes are as many as the shape asks for.
class Encoding {
 public:
  virtual ~Encoding() = default;

  // out[i] = the number at (row + i * row_step, col + i * col_step), all of them in the matrix.
  virtual void read(int64_t row, int64_t col, int64_t row_step, int64_t col_step,
                    std::span<float> out) const = 0;

  // The format in which an engine can hold what is stored here as it is; nothing where there is
  // none. The two functions behind it are for such.
  virtual std::optional<kernels::WeightFormat> format() const { return {}; }
  virtual uint8_t code(int64_t /*row*/, int64_t /*col*/) const { return 0; }
  virtual CodeGroup group(int64_t /*row*/, int64_t /*group*/) const { return {}; }
};

// One whose T has `float at(int64_t row, int64_t col) const`.
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

// Twice the number that four bits of e2m1 (sign, 2 of exponent, 1 of mantissa) stand for, an
// integer. Source: OCP Microscaling Formats 1.0.
constexpr int32_t twice_e2m1(uint8_t bits) {
  constexpr int8_t kTwice[] = {0, 1, 2, 3, 4, 6, 8, 12};
  return bits & 8 ? -kTwice[bits & 7] : kTwice[bits & 7];
}

// 2^exponent, from -149 on.
inline float power_of_two(int32_t exponent) { return std::ldexp(1.0f, exponent); }

}  // namespace nereid::io
