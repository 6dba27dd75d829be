// Element types; bf16, f16 and f8e4m3 conversion.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace nereid {

enum class DType : uint8_t {
  kF32 = 0,
  kBF16 = 1,
  kF16 = 2,
  kI32 = 3,
  kI64 = 4,
  kU8 = 5,
  kI8 = 6,
  kF8E4M3 = 7,
};

constexpr size_t size_of(DType t) {
  switch (t) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kU8:
    case DType::kI8:
    case DType::kF8E4M3:
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType t) {
  constexpr std::string_view kNames[] = {"f32", "bf16", "f16", "i32", "i64", "u8", "i8", "f8e4m3"};
  return kNames[static_cast<size_t>(t)];
}

// bfloat16 bits; arithmetic is in float.
struct BF16 {
  uint16_t bits = 0;
};

constexpr float to_float(BF16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

// Round to nearest even; NaN stays NaN.
constexpr BF16 to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

// IEEE 754 binary16.
struct F16 {
  uint16_t bits = 0;
};

constexpr float to_float(F16 x) {
  const uint32_t sign = uint32_t{x.bits} >> 15 << 31, exponent = x.bits >> 10 & 31u;
  const uint32_t mantissa = x.bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float value = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -value : value;
}

// Round to nearest even; magnitudes >= 65520 become infinity; NaN stays NaN.
constexpr F16 to_f16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t sign = u >> 31 << 15, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00)};
  if (magnitude >= std::bit_cast<uint32_t>(65520.0f)) return {static_cast<uint16_t>(sign | 0x7c00)};
  if (magnitude >= std::bit_cast<uint32_t>(0x1p-14f)) {
    const uint32_t rounded = (magnitude + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    return {static_cast<uint16_t>(sign | (rounded - (112u << 10)))};
  }
  // Sums in [0.5, 1) are multiples of 2^-24, the subnormal step.
  const uint32_t steps = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
                         std::bit_cast<uint32_t>(0.5f);
  return {static_cast<uint16_t>(sign | steps)};
}

// Sign, 4 exponent bits (bias 7), 3 mantissa bits; no infinities; 0x7f and 0xff are NaN. Source:
// Micikevicius et al. 2022, "FP8 Formats for Deep Learning".
struct F8E4M3 {
  uint8_t bits = 0;
};
inline constexpr float kLargestF8E4M3 = 448;

constexpr float to_float(F8E4M3 x) {
  const uint32_t sign = uint32_t{x.bits} >> 7 << 31, magnitude = x.bits & 0x7fu;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude >= 8) return std::bit_cast<float>(sign | (magnitude + (120u << 3)) << 20);
  const float value = static_cast<float>(magnitude) * 0x1p-9f;
  return sign ? -value : value;
}

// Round to nearest even; larger magnitudes saturate; NaN stays NaN.
constexpr F8E4M3 to_f8e4m3(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t sign = u >> 31 << 7, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<uint8_t>(sign | 0x7f)};
  if (magnitude >= std::bit_cast<uint32_t>(kLargestF8E4M3))
    return {static_cast<uint8_t>(sign | 0x7e)};
  if (magnitude >= std::bit_cast<uint32_t>(0x1p-6f)) {
    const uint32_t rounded = (magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20;
    return {static_cast<uint8_t>(sign | (rounded - (120u << 3)))};
  }
  // Sums in [2^14, 2^15) are multiples of 2^-9, the subnormal step.
  const uint32_t steps = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) -
                         std::bit_cast<uint32_t>(0x1p14f);
  return {static_cast<uint8_t>(sign | steps)};
}

}  // namespace nereid
