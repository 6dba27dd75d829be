// Raw kernels of the CPU: functions over pointers, one set per instruction set, compiled in
// separate files with that set's flags. These files include only this header, simd*.h and
// <immintrin.h>, so that no shared inline function is compiled with flags of a newer processor.
#pragma once

#include <stdint.h>

namespace nereid::kernels::cpu {

// bf16 is uint16_t here. Strides are in elements.

struct NormRaw {
  const void* x;     // f32 or bf16
  const float* add;  // or null
  float* sum;        // with add: x + add; may be x
  const uint16_t* weight;
  const uint16_t* bias;  // or null
  void* out;             // may be x
  bool x_bf16, out_bf16, centered;
  int64_t width, pieces, weight_pieces;  // width: of a piece; pieces: per row; weight_pieces:
                                         // pieces of the weight
  int64_t x_stride, add_stride, sum_stride, out_stride;
  float eps, weight_offset;
};

// Rotary embedding, see Rope in attention_ops.h.
struct RotationRaw {
  const float* angles;  // [positions, cols], or null
  int64_t cols;
  bool interleaved;
};

struct RopeRaw {
  float* x;
  int64_t stride, heads, head_dim;
  const int32_t* positions;  // null: the rows' numbers
  RotationRaw rotation;
};

struct GluRaw {
  const float* x;
  uint16_t* out;
  int64_t width, x_stride, out_stride;
  int activation;  // of row_ops.h
  float limit, up_offset;
};

struct ActivateRaw {
  const float* x;
  void* out;
  bool out_bf16;
  int64_t width, x_stride, out_stride;
  int activation;  // of row_ops.h
};

struct XieluRaw {
  const float* x;
  uint16_t* out;
  int64_t width, x_stride, out_stride;
  float positive, negative, beta;  // p, n and beta of row_ops.h
};

struct SoftCapRaw {
  const float* x;
  float* out;  // may be x
  int64_t width, x_stride, out_stride;
  float scale, cap, limit;
};

struct AddRaw {
  float* x;
  const float* y;
  int64_t width, x_stride, y_stride;
};

// LoRA for rows of one adapter: y += scale * b^T (a x).
constexpr int kLowRankRows = 4;
struct LowRankRaw {
  const uint16_t* x[kLowRankRows];  // each [k]; null (single row): `a` is a x, [rank]
  const uint16_t* a;                // [rank, k]
  const uint16_t* b;                // [rank, n]
  const uint16_t* gain;             // [2, n], see LoraMatrix; or null
  float* y[kLowRankRows];           // each [n]
  int64_t rows, k, n, rank;
  float scale;
};
constexpr int64_t kMaxLowRank = 512;

// out [rows, n] = x . weight^T * scales + bias, over panels of 16 weight rows.
struct LinearRaw {
  // f32 or bf16 rows, x_stride apart, zero-padded to even k. AMX: blocks of 16 rows, x_stride
  // apart, of tiles of 16 rows x 32 columns (i8: 64), zero past k.
  const void* x;
  int64_t x_stride;
  const uint16_t* weight;
  int64_t panel_stride;  // elements between panels
  int64_t k;             // without padding
  const uint16_t* bias;  // or null
  // Scales of outputs (padded to whole panels) and of rows of x; or null.
  const float* scales;
  const float* x_scales;
  int64_t x_scales_stride;
  const float* x_sums;  // sums over x's groups, row by row, for integer weights
  void* out;
  int64_t out_stride, n;
  bool out_bf16;
  const int64_t* out_at;  // index of each row's first element, in place of out_stride; or null
};

// Prefetch distance in bytes for bf16 or 8-bit weights in products of few rows, which are
// memory-bound. AMD (Zen 4) prefetches by itself; with more than the line itself requested it reads
// at 0.85 of the rate. Intel (Sapphire Rapids) loses as much without prefetches.
extern const int64_t kFewRowsAhead;

// Integer or f8e4m3 weights in panels of 16 rows, see WeightLayout in op.h.
struct IntegerPanelsRaw {
  const uint8_t* data;
  const float* scales;
  const uint8_t* zeros;  // null: 2^(bits - 1)
  const float* minima;   // or null; subtracted after scaling, in place of zeros
  int64_t panel_bytes;
  int64_t columns;  // padding included
  int64_t group, groups;
  int bits;      // 4 or 8
  bool float8;   // f8e4m3; zero point 0
  bool by_rows;  // scales are per row, applied to sums
};

// Columns whose products with 8-bit integers fit in a 32-bit sum for any x.
constexpr int64_t kPieceColumns = 256;
// A piece of a row of x as i16: value of one step, and the value of the piece's sum.
struct FixedPiece {
  float step, sum;
};
// u16 elements needed by 16-bit products for `rows` rows: two unpacked pieces of panels, and a
// 32-bit total per row of x and two panels.
constexpr int64_t words_memory(int64_t rows) { return 2 * 16 * kPieceColumns + rows * 2 * 32; }

// u16 elements needed by AMX products of `rows` rows, `panels` panels and `k` columns: tiles of two
// panels, and a block of 16 x 16 floats for every 16 rows of a panel.
constexpr int64_t tiles_memory(int64_t rows, int64_t panels, int64_t k) {
  return (2 * ((k + 31) / 32) + (rows + 31) / 32 * 2 * ((panels + 1) / 2 * 2)) * (16 * 64 / 2);
}
// Steps of AMX products (a tile's columns) whose weights stay in the L1 cache for all rows. Blocks
// of x are an odd number of them apart, so that those of many rows lie in different cache sets.
constexpr int64_t kSlabSteps = 16;

// KV cache types, see Attention in attention_ops.h.
enum class CacheType : uint8_t { kBf16, kInt8, kFp8 };
constexpr float kSmallestScaledVector = 0x1p-100f;
constexpr float kSmallestScaledRow = 0x1p-100f;  // kSmallestScaled of row_ops.h
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kKeysPerPanel = 16;

struct AttentionRaw {
  const float* qkv;  // attention_tile(): queries first; attention_store(): keys after `heads` heads
  void* k_cache;     // panels
  void* v_cache;
  float* k_scales;  // one per cached vector, or null
  float* v_scales;
  uint16_t* out;
  RotationRaw rotation;
  const uint16_t* sinks;  // [heads], or null
  const float* slopes;    // [heads], or null
  const float* bias;      // [heads, bias_width] by distance from bias_first on, or null
  int64_t bias_first, bias_width;
  const int32_t* positions;
  const int32_t* last;   // [tokens] last position that queries see, -1: none; or null: causal
  const uint32_t* mask;  // [tokens, mask_words] bits of visible positions, or null: all are
  int64_t mask_words;
  const int32_t* row_of_token;
  const int32_t* lengths;  // attention_store(): of rows, positions from there on are left out; null
  const int32_t* block_table;
  const int32_t* after;  // draft trees, with cells, or null
  const int32_t* cells;
  int64_t qkv_stride, out_stride, max_blocks;
  int64_t block_stride, scale_stride;  // distance of cache blocks
  int64_t heads, kv_heads;
  int64_t head_dim;      // a multiple of 4
  int64_t value_dim;     // width of a value
  bool latent;           // MLA: values are the last columns of keys
  int64_t block_tokens;  // a multiple of kKeysPerPanel
  int64_t window, sink;
  int64_t chunk;  // 0 = none
  float scale;
  float cap;  // 0 = none
  CacheType cache;
};

struct LogitsScan {
  float largest;
  bool sound;  // no NaN, no +inf
};

// Sums of logit weights by size: every weight of a bin exceeds those of the previous one.
struct WeightBins {
  static constexpr int kCount = 64;
  double sums[kCount];
  int64_t counts[kCount];
  float least[kCount], most[kCount];  // logits, by bin; valid for bins with logits
};

struct Raw {
  void (*norm)(const NormRaw&, int64_t begin, int64_t end);
  void (*rope)(const RopeRaw&, int64_t begin, int64_t end);
  void (*glu)(const GluRaw&, int64_t begin, int64_t end);
  void (*activate)(const ActivateRaw&, int64_t begin, int64_t end);
  void (*xielu)(const XieluRaw&, int64_t begin, int64_t end);
  void (*soft_cap)(const SoftCapRaw&, int64_t begin, int64_t end);
  void (*add)(const AddRaw&, int64_t begin, int64_t end);
  void (*low_rank)(const LowRankRaw&);

  // Rows [row_begin, row_end) by panels [panel_begin, panel_end); x is f32, padded to even k.
  void (*linear)(const LinearRaw&, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                 int64_t panel_end);
  // The same for f8e4m3 weights; `memory`: two panels of bf16.
  void (*linear_float8)(const LinearRaw&, const IntegerPanelsRaw&, int64_t row_begin,
                        int64_t row_end, int64_t panel_begin, int64_t panel_end, uint16_t* memory);
  // The same for integer weights; rows are fixed_row's. `memory`: words_memory().
  void (*linear_fixed)(const LinearRaw&, const IntegerPanelsRaw&, int64_t row_begin,
                       int64_t row_end, int64_t panel_begin, int64_t panel_end, uint16_t* memory);
  // Converts a bf16 row for linear_fixed: i16 in steps of a power of two per piece (at most
  // kPieceColumns columns of a group), columns 1 and 2 of every four swapped, zero-padded to a
  // multiple of four; then a FixedPiece per piece.
  void (*fixed_row)(const uint16_t* x, int64_t k, int64_t group, void* out);
  // The same for i8 rows and 8-bit integers with row scales.
  void (*linear_bytes)(const LinearRaw&, const IntegerPanelsRaw&, int64_t row_begin,
                       int64_t row_end, int64_t panel_begin, int64_t panel_end, uint16_t* memory);
  // Converts an i8 row for linear_bytes: i16 in fixed_row's order, then their sum, an int.
  void (*byte_row)(const int8_t* x, int64_t count, void* out);
  // Rounds a bf16 row to i8, see quantize_row(); returns its scale.
  float (*quantize_bytes)(const uint16_t* x, int64_t count, int8_t* out);
  // Sums of a bf16 row by group.
  void (*group_sums)(const uint16_t* x, int64_t count, int64_t group, float* out);
  void (*widen_row)(const uint16_t* x, int64_t count, float* out);  // bf16 -> f32

  // Writes the rotated K and V of tokens [begin, end) to the cache, all KV heads.
  void (*attention_store)(const AttentionRaw&, int64_t begin, int64_t end);
  // Scratch floats of an attention_tile call with `rows` queries (tokens x heads).
  int64_t (*attention_scratch)(const AttentionRaw&, int64_t rows);
  // Tokens [begin, begin + count) of one row by query heads [head, head + heads) of one KV head. A
  // query's bits are independent of the others in the call. Tokens in draft trees come alone.
  void (*attention_tile)(const AttentionRaw&, int64_t begin, int64_t count, int64_t head,
                         int64_t heads, float* scratch);

  // Largest logit of each piece of kLogitsPiece (the last may be shorter).
  LogitsScan (*scan_logits)(const float* x, int64_t count, float* piece_largest);
  // Sum of exp((x - largest) / temperature) over x >= threshold; *num: their number.
  double (*sum_weights)(const float* x, int64_t count, float largest, float temperature,
                        float threshold, int64_t* num);
  // The same over x in [from, to], in bins of equal width.
  void (*bin_weights)(const float* x, int64_t count, float largest, float temperature, float from,
                      float to, WeightBins& bins);

  double (*peak_flops)(
      int64_t iterations);  // runs `iterations` rounds; returns floating-point operations
  float (*read_bytes)(const void* data,
                      int64_t bytes);  // reads everything; returns a sum
};

inline constexpr int64_t kLogitsPiece = 64;

extern const Raw kAvx2;
extern const Raw kAvx512;

// Signatures of Raw::linear and Raw::linear_float8. AMX: row_begin is a multiple of 16.
void linear_avx512_bf16(const LinearRaw& a, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                        int64_t panel_end);
void linear_narrow_avx512_bf16(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                               int64_t row_end, int64_t panel_begin, int64_t panel_end,
                               uint16_t* memory);
// Raw::linear_bytes; rows are i8, zero-padded to a multiple of 4, followed by their sum (an int).
void linear_bytes_avx512_vnni(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                              int64_t row_end, int64_t panel_begin, int64_t panel_end,
                              uint16_t* memory);
void byte_row_avx512_vnni(const int8_t* x, int64_t count, void* out);
// `memory`: tiles_memory(). The first: weights are bf16, those of LinearRaw. The third: x's rows
// and the weights are i8.
void linear_amx(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin, int64_t row_end,
                int64_t panel_begin, int64_t panel_end, uint16_t* memory);
void linear_narrow_amx(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                       int64_t row_end, int64_t panel_begin, int64_t panel_end, uint16_t* memory);
void linear_bytes_amx(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                      int64_t row_end, int64_t panel_begin, int64_t panel_end, uint16_t* memory);

// Raw::attention_scratch and attention_tile: a bf16 cache, head_dim a multiple of 32, not latent.
int64_t attention_scratch_amx(const AttentionRaw& a, int64_t rows);
void attention_tile_amx(const AttentionRaw& a, int64_t begin, int64_t count, int64_t head,
                        int64_t heads, float* scratch);

// Raw::low_rank with a x by vdpbf16ps.
void low_rank_avx512_bf16(const LowRankRaw& a);

// Floating-point operations of `iterations` rounds of independent dot products in registers.
double peak_flops_avx512_bf16(int64_t iterations);
double peak_flops_amx(int64_t iterations);

}  // namespace nereid::kernels::cpu
