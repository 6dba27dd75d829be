// LoRA with a x by vdpbf16ps.
#include "kernels/cpu/simd_low_rank.h"

namespace nereid::kernels::cpu {
namespace avx512_bf16 {
namespace {

struct PairDot {
  using V = __m512bh;
  static constexpr int64_t kStep = 2 * kLanes;
  static V load(const uint16_t* p) { return reinterpret_cast<V>(_mm512_loadu_si512(p)); }
  static V load_part(const uint16_t* p, int64_t n) {
    const auto columns = static_cast<__mmask32>((uint32_t{1} << n) - 1);
    return reinterpret_cast<V>(_mm512_maskz_loadu_epi16(columns, p));
  }
  static F add(F sum, V a, V x) { return _mm512_dpbf16_ps(sum, a, x); }
};

}  // namespace
}  // namespace avx512_bf16

void low_rank_avx512_bf16(const LowRankRaw& a) {
  avx512_bf16::low_rank_with<avx512_bf16::PairDot>(a);
}

}  // namespace nereid::kernels::cpu
