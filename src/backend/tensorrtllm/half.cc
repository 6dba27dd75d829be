// Conversion to half precision.
#include "backend/tensorrtllm/half.h"

#include <cstring>

#include "tensor/dtype.h"

namespace nereid::backend {

std::string to_half_bytes(const std::vector<float>& values) {
  std::string out(values.size() * sizeof(uint16_t), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    const F16 half = to_f16(values[i]);
    std::memcpy(out.data() + i * sizeof(half), &half, sizeof(half));
  }
  return out;
}

}  // namespace nereid::backend
