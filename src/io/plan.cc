#include "io/plan.h"

#include <algorithm>

#include "base/hash.h"

namespace nereid::io {

std::string_view name_of(const Op& op) {
  return std::visit([](const auto& x) { return std::remove_cvref_t<decltype(x)>::kName; }, op);
}

kernels::WeightView view_of(const PlanWeight& weight, const std::byte* blob) {
  using kernels::PlaneRole;
  kernels::WeightView view{nullptr, weight.layout, weight.n, weight.k, weight.format};
  view.experts = weight.experts;
  if (!blob) return view;
  for (const Plane& plane : weight.planes) {
    const std::byte* const at = blob + plane.offset;
    if (plane.shape.role == PlaneRole::kData) view.data = at;
    if (plane.shape.role == PlaneRole::kScales && plane.shape.type == DType::kU8)
      view.exponents = reinterpret_cast<const uint8_t*>(at);
    else if (plane.shape.role == PlaneRole::kScales)
      view.scales = reinterpret_cast<const float*>(at);
    if (plane.shape.role == PlaneRole::kZeros) view.zeros = reinterpret_cast<const uint8_t*>(at);
    if (plane.shape.role == PlaneRole::kMinima) view.minima = reinterpret_cast<const float*>(at);
    if (plane.shape.role == PlaneRole::kIndex) view.index = reinterpret_cast<const int32_t*>(at);
  }
  return view;
}

std::string text_of(const Mapping& m) {
  std::string text = fmt::format("tp {}", m.tp);
  if (m.pp > 1) text += fmt::format(", pp {}", m.pp);
  if (m.ep > 1) text += fmt::format(", ep {}", m.ep);
  return text + fmt::format(", rank {}", m.rank);
}

Status check_mapping(const Mapping& m) {
  for (const auto& [field, value] : {std::pair("tp", m.tp), {"pp", m.pp}, {"ep", m.ep}})
    if (value < 1 || value > kMaxRanks)
      return invalid_argument("mapping.{}: {} is not in [1, {}]", field, value, kMaxRanks);
  if (m.world() > kMaxRanks)
    return invalid_argument("mapping: {} tensor ranks in {} stages are more than {} ranks", m.tp,
                            m.pp, kMaxRanks);
  if (m.tp % m.ep != 0)
    return invalid_argument("mapping.ep: {} does not divide the {} tensor ranks", m.ep, m.tp);
  if (m.rank < 0 || m.rank >= m.world())
    return invalid_argument("mapping.rank: {} is not in [0, {})", m.rank, m.world());
  return ok();
}

uint64_t weight_checksum(const void* data, size_t bytes) {
  uint64_t sum = 0;
  const char* p = static_cast<const char*>(data);
  for (size_t at = 0; at < bytes; at += kChecksumPiece)
    sum = hash64(p + at, std::min(kChecksumPiece, bytes - at), sum);
  return sum;
}

}  // namespace nereid::io
