// Number format of a weight, independent of layout; comparable, stored in engine files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace nereid::kernels {

enum class Scheme : uint8_t {
  kFloat = 0,    // bf16
  kInteger = 1,  // unsigned integers u of `bits` bits: scale * (u - zero), or scale * u - minimum
  kFloat8 = 2,   // f8e4m3 numbers f: scale * f, per row or group
  kFloat32 = 3,  // f32, vectors only
  kFloat4 = 4,   // e2m1 numbers f: f * 2^(e - 127), a byte e for each group
};
inline std::span<const std::string_view> names_of(Scheme) {
  static constexpr std::string_view kNames[] = {"float", "integer", "float8", "float32", "float4"};
  return kNames;
}

// `inputs`: type to which a product's x is rounded row by row (QuantizeOf in row_ops.h); devices
// without a kernel multiply x unrounded.
//
// A scale (and zero point, or minimum) is for a group of consecutive columns of one row; the last
// group may be shorter. Values of integers, and of f8e4m3 numbers in groups, are rounded to bf16;
// kernels may instead multiply the numbers unrounded and scale each group's sum. Values of e2m1
// numbers are exact in bf16. f8e4m3 numbers with a scale per row are multiplied unscaled, the scale
// is applied to the sum; likewise integers with i8 inputs.
struct WeightFormat {
  Scheme scheme = Scheme::kFloat;
  int32_t bits = 16;
  int32_t group = 0;            // columns per group; 0 = the whole row
  DType scales = DType::kF32;   // type of the scales; u8: exponents
  bool zeros = false;           // u8 zero points; without: 2^(bits - 1)
  bool minima = false;          // f32 minima in place of zero points
  bool ordered = false;         // reordered columns: i32 group of each column
  DType inputs = DType::kBF16;  // bf16: x unrounded

  bool operator==(const WeightFormat&) const = default;
  bool is_float() const { return scheme == Scheme::kFloat; }
  int64_t group_size(int64_t k) const { return group > 0 && group < k ? group : k; }
  int64_t num_groups(int64_t k) const { return (k + group_size(k) - 1) / group_size(k); }
  int64_t row_bytes(int64_t k) const { return (k * bits + 7) / 8; }  // row-major
  constexpr int32_t default_zero() const { return 1 << (bits - 1); }
};

// Whether a row's scale is applied to its sum.
constexpr bool scales_sums(const WeightFormat& f) {
  return (f.scheme == Scheme::kFloat8 && f.group == 0) || f.inputs == DType::kI8;
}

inline constexpr int32_t kGroupUnit = 16;  // group sizes are multiples of it

inline constexpr WeightFormat kFloat32 = {.scheme = Scheme::kFloat32, .bits = 32};
inline constexpr WeightFormat kInt8PerRow = {.scheme = Scheme::kInteger, .bits = 8};
inline constexpr WeightFormat kInt4Groups = {.scheme = Scheme::kInteger, .bits = 4, .group = 128};
inline constexpr WeightFormat kInt8Both = {
    .scheme = Scheme::kInteger, .bits = 8, .inputs = DType::kI8};
inline constexpr WeightFormat kFp8PerRow = {
    .scheme = Scheme::kFloat8, .bits = 8, .inputs = DType::kF8E4M3};
// Converted from 128 x 128 block scales: each row has its blocks' scales.
inline constexpr WeightFormat kFp8Groups = {.scheme = Scheme::kFloat8, .bits = 8, .group = 128};

// MXFP4 (OCP Microscaling Formats 1.0) with e <= kMaxExponent.
inline constexpr WeightFormat kMxfp4 = {
    .scheme = Scheme::kFloat4, .bits = 4, .group = 32, .scales = DType::kU8};
inline constexpr int32_t kMaxExponent = 128;

// Integers that hold the same numbers, for devices without a kernel for kMxfp4.
inline constexpr WeightFormat kMxfp4Integers = {.scheme = Scheme::kInteger, .bits = 8, .group = 32};

// Error in a format; "": none. `can` decides which valid formats a kernel supports.
std::string_view format_error(const WeightFormat& format);

// "bf16", "fp8", "fp8 in groups of 128", "int8", "int8 both" (inputs too), "int4 in groups of 128",
// "... with zero points", "... with minima", "mxfp4".
std::string text_of(const WeightFormat& format);

}  // namespace nereid::kernels
