// IEEE 754 half precision, for logits that a model declares as FP16.
#pragma once

#include <string>
#include <vector>

namespace nereid::backend {

// to_f16(), little-endian, two bytes each.
std::string to_half_bytes(const std::vector<float>& values);

}  // namespace nereid::backend
