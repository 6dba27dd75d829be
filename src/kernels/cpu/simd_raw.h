// Raw kernels of one instruction set, see Raw in raw.h.
#pragma once

#include "kernels/cpu/raw.h"

namespace nereid::kernels::cpu::NEREID_SIMD {

void norm(const NormRaw& a, int64_t begin, int64_t end);
void rope(const RopeRaw& a, int64_t begin, int64_t end);
void glu(const GluRaw& a, int64_t begin, int64_t end);
void activate(const ActivateRaw& a, int64_t begin, int64_t end);
void xielu(const XieluRaw& a, int64_t begin, int64_t end);
void soft_cap(const SoftCapRaw& a, int64_t begin, int64_t end);
void add(const AddRaw& a, int64_t begin, int64_t end);
void low_rank(const LowRankRaw& a);
void linear(const LinearRaw& a, int64_t row_begin, int64_t row_end, int64_t panel_begin,
            int64_t panel_end);
void linear_float8(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                   int64_t row_end, int64_t panel_begin, int64_t panel_end, uint16_t* memory);
void linear_fixed(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin, int64_t row_end,
                  int64_t panel_begin, int64_t panel_end, uint16_t* memory);
void fixed_row(const uint16_t* x, int64_t k, int64_t group, void* out);
void linear_bytes(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin, int64_t row_end,
                  int64_t panel_begin, int64_t panel_end, uint16_t* memory);
void byte_row(const int8_t* x, int64_t count, void* out);
float quantize_bytes(const uint16_t* x, int64_t count, int8_t* out);
void group_sums(const uint16_t* x, int64_t count, int64_t group, float* out);
void widen_row(const uint16_t* x, int64_t count, float* out);
void attention_store(const AttentionRaw& a, int64_t begin, int64_t end);
int64_t attention_scratch(const AttentionRaw& a, int64_t rows);
void attention_tile(const AttentionRaw& a, int64_t begin, int64_t count, int64_t head,
                    int64_t heads, float* scratch);
LogitsScan scan_logits(const float* x, int64_t count, float* piece_largest);
double sum_weights(const float* x, int64_t count, float largest, float temperature, float threshold,
                   int64_t* num);
void bin_weights(const float* x, int64_t count, float largest, float temperature, float from,
                 float to, WeightBins& bins);
double peak_flops(int64_t iterations);
float read_bytes(const void* data, int64_t bytes);

// Rotates a head vector for its position into `out`, which may be `x`; products and sums are
// rounded separately, so fused and separate Rope give equal bits.
void rotate(const float* x, const RotationRaw& rotation, int64_t position, int64_t head_dim,
            float* out);

}  // namespace nereid::kernels::cpu::NEREID_SIMD
