// Conversion to half precision.
#include "backend/tensorrtllm/half.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace nereid::backend {

uint16_t to_half(float value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7E00;
  if (magnitude >= 65520.0f) return sign | 0x7C00;
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  // Half has 11 significant bits, fewer below 2^-14, where its spacing stays 2^-24.
  const int spacing = std::max(exponent - 11, -24);
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -spacing)));
  // A carry out of the 11 bits moves into the exponent by itself.
  return static_cast<uint16_t>(sign | (steps + (static_cast<uint32_t>(spacing + 24) << 10)));
}

std::string to_half_bytes(const std::vector<float>& values) {
  std::string out(values.size() * sizeof(uint16_t), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = to_half(values[i]);
    std::memcpy(out.data() + i * sizeof(half), &half, sizeof(half));
  }
  return out;
}

}  // namespace nereid::backend
