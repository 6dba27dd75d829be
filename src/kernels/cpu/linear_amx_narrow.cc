// Linear with AMX tiles and weights narrower than bf16. bf16 rows are multiplied by the integers
// (minus zero points) or f8e4m3 numbers, exact in bf16; a group's sum is scaled and added to the
// element's. i8 rows are multiplied by bytes, with exact sums. Numbers of small groups, or with
// minima, are scaled and rounded to bf16 before the product.
#include "kernels/cpu/simd_amx_product.h"

namespace nereid::kernels::cpu {
namespace amx {
namespace {

// Flushes numbers below 2^-126 to zero during its lifetime, as tile products do.
class FlushToZero {
 public:
  FlushToZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~FlushToZero() { _mm_setcsr(before_); }
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;

 private:
  const unsigned before_;
};

// Whether groups are long enough for scaling their sums.
bool scales_group_sums(const IntegerPanelsRaw& w) {
  constexpr int64_t kLeastColumns = 64;
  return !w.minima && (w.groups == 1 || (w.group >= kLeastColumns && w.group % 32 == 0));
}

}  // namespace
}  // namespace amx

void linear_narrow_amx(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                       int64_t row_end, int64_t panel_begin, int64_t panel_end, uint16_t* memory) {
  using namespace amx;
  const FlushToZero all;      // for single rows too
  LinearRaw with_scales = a;  // of the only group
  if (w.groups == 1) with_scales.scales = w.scales;
  const auto run = [&]<class Numbers, Scales kScales>() {
    Product<Numbers, kScales>(kScales == Scales::kByRows ? with_scales : a, w, memory)
        .run(row_begin, row_end, panel_begin, panel_end);
  };
  if (w.by_rows) return run.operator()<Floats8, Scales::kByRows>();
  if (!scales_group_sums(w)) {
    if (w.float8) return run.operator()<Scaled<8, true>, Scales::kInNumbers>();
    if (w.bits == 8) return run.operator()<Scaled<8, false>, Scales::kInNumbers>();
    return w.zeros ? run.operator()<Scaled<4, false, true>, Scales::kInNumbers>()
                   : run.operator()<Scaled<4, false>, Scales::kInNumbers>();
  }
  const auto run_sums = [&]<class Numbers>() {
    w.groups == 1 ? run.template operator()<Numbers, Scales::kByRows>()
                  : run.template operator()<Numbers, Scales::kBySums>();
  };
  if (w.float8) return run_sums.operator()<Floats8>();
  if (w.bits == 8) return run_sums.operator()<Eights>();
  w.zeros ? run_sums.operator()<ZeroedFours>() : run_sums.operator()<MiddleFours>();
}

void linear_bytes_amx(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                      int64_t row_end, int64_t panel_begin, int64_t panel_end, uint16_t* memory) {
  using namespace amx;
  const FlushToZero all;
  Product<Bytes, Scales::kByRows>(a, w, memory).run(row_begin, row_end, panel_begin, panel_end);
}

}  // namespace nereid::kernels::cpu
