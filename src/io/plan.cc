#include "io/plan.h"

#include <algorithm>

#include "base/hash.h"
#include "kernels/api/pack.h"

namespace nereid::io {

std::string_view name_of(const Op& op) {
  return std::visit([](const auto& x) { return std::remove_cvref_t<decltype(x)>::kName; }, op);
}

uint64_t stored_bytes(DType dtype, int64_t n, int64_t k, kernels::WeightLayout layout) {
  if (layout == kernels::WeightLayout::kPanel16) return kernels::panel16_bytes(n, k);
  return static_cast<uint64_t>(n) * static_cast<uint64_t>(k) * size_of(dtype);
}

uint64_t weight_checksum(const void* data, size_t bytes) {
  uint64_t sum = 0;
  const char* p = static_cast<const char*>(data);
  for (size_t at = 0; at < bytes; at += kChecksumPiece)
    sum = hash64(p + at, std::min(kChecksumPiece, bytes - at), sum);
  return sum;
}

}  // namespace nereid::io
