// IEEE 754 half precision, for logits in models that declare them as FP16.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nereid::backend {

// Rounds to nearest even; beyond 65504 becomes infinity, NaN stays NaN.
uint16_t to_half(float value);

// Little-endian, two bytes each.
std::string to_half_bytes(const std::vector<float>& values);

}  // namespace nereid::backend
