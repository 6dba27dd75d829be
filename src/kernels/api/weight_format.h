// What the numbers of a weight are, apart from where they lie: a value that passes compare and that
// an engine file keeps beside every weight.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace nereid::kernels {

enum class Scheme : uint8_t {
  kFloat = 0,    // bf16 numbers
  kInteger = 1,  // unsigned integers u of `bits` bits that stand for scale * (u - zero), or for
                 // scale * u - minimum
  kFloat8 = 2,   // f8e4m3 numbers f that stand for scale * f, of whole rows or of groups
  kFloat32 = 3,  // f32 numbers, of vectors alone
};
inline std::span<const std::string_view> names_of(Scheme) {
  static constexpr std::string_view kNames[] = {"float", "integer", "float8", "float32"};
  return kNames;
}

// `inputs`: what x is rounded to in front of a product, a row at a time (QuantizeOf in row_ops.h);
// a device without a kernel for it multiplies x as it is.
//
// A scale (and a zero point, or a minimum) belongs to a group of consecutive columns of one row;
// the last group of a row may be shorter. What an integer, or a number of f8e4m3 in groups, stands
// for is rounded to bf16; a kernel may leave that rounding out, multiply the numbers as they are
// and scale the sum over a group. f8e4m3 numbers with one scale for a row are multiplied as they
// are, and the scale comes after the sum; so are integers with inputs of i8.
struct WeightFormat {
  Scheme scheme = Scheme::kFloat;
  int32_t bits = 16;
  int32_t group = 0;            // columns of a group; 0 = the whole row
  DType scales = DType::kF32;   // type of the scales
  bool zeros = false;           // with zero points, u8; without them the zero is 2^(bits - 1)
  bool minima = false;          // with minima, f32, in the place of zero points
  bool ordered = false;         // columns are in an order of their own: i32 group of each column
  DType inputs = DType::kBF16;  // bf16: x as it is

  bool operator==(const WeightFormat&) const = default;
  bool is_float() const { return scheme == Scheme::kFloat; }
  int64_t group_size(int64_t k) const { return group > 0 && group < k ? group : k; }
  int64_t num_groups(int64_t k) const { return (k + group_size(k) - 1) / group_size(k); }
  int64_t row_bytes(int64_t k) const { return (k * bits + 7) / 8; }  // row-major
  constexpr int32_t default_zero() const { return 1 << (bits - 1); }
};

// Whether a row's scale comes after its sum.
constexpr bool scales_sums(const WeightFormat& f) {
  return (f.scheme == Scheme::kFloat8 && f.group == 0) || f.inputs == DType::kI8;
}

inline constexpr int32_t kGroupUnit = 16;  // groups start at multiples of it

inline constexpr WeightFormat kFloat32 = {.scheme = Scheme::kFloat32, .bits = 32};
inline constexpr WeightFormat kInt8PerRow = {.scheme = Scheme::kInteger, .bits = 8};
inline constexpr WeightFormat kInt4Groups = {.scheme = Scheme::kInteger, .bits = 4, .group = 128};
inline constexpr WeightFormat kInt8Both = {
    .scheme = Scheme::kInteger, .bits = 8, .inputs = DType::kI8};
inline constexpr WeightFormat kFp8PerRow = {
    .scheme = Scheme::kFloat8, .bits = 8, .inputs = DType::kF8E4M3};
// What blocks of 128 rows and columns become: each row has its block's scales.
inline constexpr WeightFormat kFp8Groups = {.scheme = Scheme::kFloat8, .bits = 8, .group = 128};

// What is wrong with a format, "" when nothing is. Which of the right ones a kernel takes is said
// by its `can`.
std::string_view format_error(const WeightFormat& format);

// For people: "bf16", "fp8", "fp8 in groups of 128", "int8", "int8 both" (inputs too), "int4 in
// groups of 128", "... with zero points", "... with minima".
std::string text_of(const WeightFormat& format);

}  // namespace nereid::kernels
