#include "convert/quantize/rank_rounding.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace nereid::convert {
namespace {

constexpr float kLeastFp8Scale = 1.0f / (kLargestF8E4M3 * 512);

bool is_finite(F16 x) { return (x.bits & 0x7c00u) != 0x7c00u; }

float as_stored(float value, DType dtype) {
  if (dtype == DType::kBF16) return to_float(to_bf16(value));
  const F16 half = to_f16(value);
  return dtype == DType::kF16 && is_finite(half) ? to_float(half) : value;
}

}  // namespace

bool store_as(DType type, float value, std::byte* out) {
  if (type == DType::kF32) {
    std::memcpy(out, &value, sizeof value);
  } else if (type == DType::kF16) {
    const F16 half = to_f16(value);
    if (!is_finite(half)) return false;
    std::memcpy(out, &half, sizeof half);
  } else {
    const BF16 rounded = to_bf16(value);
    if ((rounded.bits & 0x7f80u) == 0x7f80u) return false;
    std::memcpy(out, &rounded, sizeof rounded);
  }
  return true;
}

void round_rows(RankType type, DType dtype, std::span<const float> rows, int64_t k,
                std::vector<std::byte>& codes, std::vector<float>& scales) {
  const size_t width = static_cast<size_t>(k);
  const int32_t half = type == RankType::kInt4 ? 8 : 128;  // integers are in [-half, half)
  for (size_t row = 0; row < rows.size() / width; ++row) {
    const std::span<const float> x = rows.subspan(row * width, width);
    float largest = 0;
    for (const float v : x) largest = std::max(largest, std::fabs(v));
    const bool is_fp8 = type == RankType::kFp8Rows;
    const float scale = is_fp8 ? std::max(largest / kLargestF8E4M3, kLeastFp8Scale)
                               : as_stored(largest / static_cast<float>(half), dtype);
    scales.push_back(scale);
    const bool upper = type == RankType::kInt4 && row % 2 != 0;
    if (!upper) codes.resize(codes.size() + width);
    std::byte* const out = codes.data() + codes.size() - width;
    for (size_t i = 0; i < width; ++i) {
      if (is_fp8) {
        out[i] = static_cast<std::byte>(to_f8e4m3(x[i] / scale).bits);
        continue;
      }
      const float steps = scale > 0 ? std::nearbyint(x[i] / scale) : 0;
      const auto integer = static_cast<int32_t>(
          std::clamp(steps, -static_cast<float>(half), static_cast<float>(half - 1)));
      if (type == RankType::kInt8)
        out[i] = static_cast<std::byte>(integer);
      else if (upper)
        out[i] |= static_cast<std::byte>((integer & 15) << 4);
      else
        out[i] = static_cast<std::byte>(integer & 15);
    }
  }
}

}  // namespace nereid::convert
