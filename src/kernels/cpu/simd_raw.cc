// The raw kernel table of one instruction set.
#include "kernels/cpu/simd_raw.h"

namespace nereid::kernels::cpu {

extern const Raw NEREID_SIMD_TABLE = {
    .norm = NEREID_SIMD::norm,
    .rope = NEREID_SIMD::rope,
    .glu = NEREID_SIMD::glu,
    .activate = NEREID_SIMD::activate,
    .xielu = NEREID_SIMD::xielu,
    .soft_cap = NEREID_SIMD::soft_cap,
    .add = NEREID_SIMD::add,
    .low_rank = NEREID_SIMD::low_rank,
    .linear = NEREID_SIMD::linear,
    .linear_float8 = NEREID_SIMD::linear_float8,
    .linear_fixed = NEREID_SIMD::linear_fixed,
    .fixed_row = NEREID_SIMD::fixed_row,
    .linear_bytes = NEREID_SIMD::linear_bytes,
    .byte_row = NEREID_SIMD::byte_row,
    .quantize_bytes = NEREID_SIMD::quantize_bytes,
    .group_sums = NEREID_SIMD::group_sums,
    .widen_row = NEREID_SIMD::widen_row,
    .attention_store = NEREID_SIMD::attention_store,
    .attention_scratch = NEREID_SIMD::attention_scratch,
    .attention_tile = NEREID_SIMD::attention_tile,
    .scan_logits = NEREID_SIMD::scan_logits,
    .sum_weights = NEREID_SIMD::sum_weights,
    .bin_weights = NEREID_SIMD::bin_weights,
    .peak_flops = NEREID_SIMD::peak_flops,
    .read_bytes = NEREID_SIMD::read_bytes,
};

}  // namespace nereid::kernels::cpu
