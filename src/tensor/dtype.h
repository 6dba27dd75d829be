// Element types and bf16 conversion.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace nereid {

enum class DType : uint8_t { kF32 = 0, kBF16 = 1, kF16 = 2, kI32 = 3, kI64 = 4, kU8 = 5, kI8 = 6 };

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
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType t) {
  constexpr std::string_view kNames[] = {"f32", "bf16", "f16", "i32", "i64", "u8", "i8"};
  return kNames[static_cast<size_t>(t)];
}

// bfloat16 bits; arithmetic happens in float.
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

}  // namespace nereid
