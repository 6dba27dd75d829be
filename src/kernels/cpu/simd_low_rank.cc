// LoRA with f32 products.
#include "kernels/cpu/simd_low_rank.h"

#include "kernels/cpu/simd_raw.h"

namespace nereid::kernels::cpu::NEREID_SIMD {
namespace {

struct VectorDot {
  using V = F;
  static constexpr int64_t kStep = kLanes;
  static V load(const uint16_t* p) { return load_bf16(p); }
  static V load_part(const uint16_t* p, int64_t n) { return load_bf16_part(p, n); }
  static F add(F sum, V a, V x) { return fma(a, x, sum); }
};

}  // namespace

void low_rank(const LowRankRaw& a) { low_rank_with<VectorDot>(a); }

}  // namespace nereid::kernels::cpu::NEREID_SIMD
