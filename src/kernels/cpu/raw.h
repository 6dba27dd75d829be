// The raw kernels of the CPU: plain functions over pointers, one set per instruction set, each
// compiled in files of its own with that set's flags. Those files include nothing but this header,
// simd*.h and <immintrin.h>, so that no shared inline function is ever compiled with flags that
// another processor cannot run.
#pragma once

#include <stdint.h>

namespace nereid::kernels::cpu {

// bf16 is uint16_t here. Strides are in elements.

struct NormRaw {
  const void* x;     // f32 or bf16
  const float* add;  // or null
  float* sum;        // with add: where x + add goes; may be x
  const uint16_t* weight;
  const uint16_t* bias;  // or null
  void* out;             // may be x
  bool x_bf16, out_bf16, centered;
  int64_t width, pieces, weight_pieces;  // of a piece; of a row; those that the weight has
  int64_t x_stride, add_stride, sum_stride, out_stride;
  float eps, weight_offset;
};

// How heads are rotated, see Rope in attention_ops.h.
struct RotationRaw {
  const float* angles;  // [positions, cols], or null
  int64_t cols;
  bool interleaved;
};

struct RopeRaw {
  float* x;
  int64_t stride, heads, head_dim;
  const int32_t* positions;
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
  uint16_t* out;
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

// Of rows of one adapter: y += scale * b^T (a x).
constexpr int kLowRankRows = 4;
struct LowRankRaw {
  const uint16_t* x[kLowRankRows];  // of each row [k]; null, of a single one: `a` is a x, [rank]
  const uint16_t* a;                // [rank, k]
  const uint16_t* b;                // [rank, n]
  const uint16_t* gain;             // [2, n], see AdapterMatrix; or null
  float* y[kLowRankRows];           // of each row [n]
  int64_t rows, k, n, rank;
  float scale;
};
constexpr int64_t kMaxLowRank = 512;

// out[rows, n] = x . weight^T * scales + bias over panels of 16 weight rows.
struct LinearRaw {
  // f32 or bf16 rows, x_stride apart, readable (as zeros) up to even k. For AMX: blocks of 16 rows,
  // x_stride apart, of tiles of 16 rows x 32 columns (i8: x 64), zero past k.
  const void* x;
  int64_t x_stride;
  const uint16_t* weight;
  int64_t panel_stride;  // elements between two panels
  int64_t k;             // without padding
  const uint16_t* bias;  // or null
  // Of each output, in memory for whole panels, and of each row of x; or null.
  const float* scales;
  const float* x_scales;
  int64_t x_scales_stride;
  const float* x_sums;  // of x's groups, a row behind the other, for weights of integers
  void* out;
  int64_t out_stride, n;
  bool out_bf16;
  const int64_t* out_at;  // first element of each row, in the place of out_stride; or null
};

// How far ahead of its use a product of few rows asks for a line of bf16 or 8-bit weights, in
// bytes. It waits for memory alone. AMD's processors (Zen 4) fetch ahead by themselves and ask for
// the line itself: asked for more they read at 0.85 of the rate. Intel's (Sapphire Rapids) lose as
// much when they are not asked.
extern const int64_t kFewRowsAhead;

// Weights of integers or f8e4m3 numbers in panels of 16 rows, see WeightLayout in op.h.
struct IntegerPanelsRaw {
  const uint8_t* data;
  const float* scales;
  const uint8_t* zeros;  // or null: 2^(bits - 1)
  const float* minima;   // or null; subtracted after the scale, in the place of zeros before it
  int64_t panel_bytes;
  int64_t columns;  // with padding
  int64_t group, groups;
  int bits;      // 4 or 8
  bool float8;   // f8e4m3, whose zero is 0
  bool by_rows;  // the scale is not multiplied in
};

// Columns whose products with 8-bit integers have a sum in 32 bits, whatever x.
constexpr int64_t kPieceColumns = 256;
// Of a piece of a row of x in words: what 1 stands for, and what the sum of all stands for.
struct FixedPiece {
  float step, sum;
};
// Elements of u16 that products in words need for `rows` rows: two unpacked pieces of panels, and
// a total of 32 bits for each row of x and of two panels.
constexpr int64_t words_memory(int64_t rows) { return 2 * 16 * kPieceColumns + rows * 2 * 32; }

// Elements of u16 that products by AMX need for `rows` rows and weights of `k` columns: the tiles
// of four panels, and for each 16 rows two blocks of 16 rows x 16 floats.
constexpr int64_t tiles_memory(int64_t rows, int64_t k) {
  return (4 * ((k + 31) / 32) + 2 * ((rows + 31) / 32 * 2)) * (16 * 64 / 2);
}

// Element types of a KV cache, see Attention in attention_ops.h.
enum class CacheType : uint8_t { kBf16, kInt8, kFp8 };
constexpr float kSmallestScaledVector = 0x1p-100f;
constexpr float kSmallestScaledRow = 0x1p-100f;  // see kSmallestScaled in row_ops.h
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kKeysPerPanel = 16;

struct AttentionRaw {
  const float* qkv;
  void* k_cache;  // in panels
  void* v_cache;
  float* k_scales;  // one for each vector of the cache, or null
  float* v_scales;
  uint16_t* out;
  RotationRaw rotation;
  const uint16_t* sinks;  // [heads], or null
  const float* slopes;    // [heads], or null
  const int32_t* positions;
  const int32_t* row_of_token;
  const int32_t* block_table;
  const int32_t* after;  // of tokens in trees, with cells, or null
  const int32_t* cells;
  int64_t qkv_stride, out_stride, max_blocks;
  int64_t block_stride, scale_stride;  // from block to block of the cache
  int64_t heads, kv_heads;
  int64_t head_dim;      // a multiple of 4
  int64_t value_dim;     // columns of a value
  bool latent;           // values are the last columns of the keys
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

// Sums of weights of logits, by their size: those of a bin are larger than those of the bin before.
struct WeightBins {
  static constexpr int kCount = 64;
  double sums[kCount];
  int64_t counts[kCount];
  float least[kCount], most[kCount];  // logits; of bins with some
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
  // Likewise with a weight of f8e4m3 numbers; `memory`: for two panels of bf16.
  void (*linear_float8)(const LinearRaw&, const IntegerPanelsRaw&, int64_t row_begin,
                        int64_t row_end, int64_t panel_begin, int64_t panel_end, uint16_t* memory);
  // Likewise with a weight of integers; rows are fixed_row's. `memory`: words_memory().
  void (*linear_fixed)(const LinearRaw&, const IntegerPanelsRaw&, int64_t row_begin,
                       int64_t row_end, int64_t panel_begin, int64_t panel_end, uint16_t* memory);
  // A row of bf16 as linear_fixed reads it: i16 in steps of a power of two for each piece of at
  // most kPieceColumns of a group's columns, of every four columns the second and third changed in
  // place, zero up to a multiple of four; then a FixedPiece for each piece.
  void (*fixed_row)(const uint16_t* x, int64_t k, int64_t group, void* out);
  // Likewise of rows of i8 by 8-bit integers whose scales are those of rows.
  void (*linear_bytes)(const LinearRaw&, const IntegerPanelsRaw&, int64_t row_begin,
                       int64_t row_end, int64_t panel_begin, int64_t panel_end, uint16_t* memory);
  // A row of i8 as linear_bytes reads it: i16 in the order of fixed_row's, then their sum, an int.
  void (*byte_row)(const int8_t* x, int64_t count, void* out);
  // A row of bf16 in i8, see quantize_row(); its scale.
  float (*quantize_bytes)(const uint16_t* x, int64_t count, int8_t* out);
  // Of each group of a row of bf16.
  void (*group_sums)(const uint16_t* x, int64_t count, int64_t group, float* out);
  void (*widen_row)(const uint16_t* x, int64_t count, float* out);  // bf16 -> f32

  // Writes the rotated K and V of tokens [begin, end) to the cache, every kv head.
  void (*attention_store)(const AttentionRaw&, int64_t begin, int64_t end);
  // Floats of scratch that one call of attention_tile needs for `rows` queries (tokens x heads).
  int64_t (*attention_scratch)(const AttentionRaw&, int64_t rows);
  // Tokens [begin, begin + count) of one sequence by query heads [head, head + heads) of one kv
  // head. A query's bits do not depend on which others are in the call. A token in a tree is alone.
  void (*attention_tile)(const AttentionRaw&, int64_t begin, int64_t count, int64_t head,
                         int64_t heads, float* scratch);

  // Largest logit of each piece of kLogitsPiece (the last may be shorter).
  LogitsScan (*scan_logits)(const float* x, int64_t count, float* piece_largest);
  // Sum of exp((x - largest) / temperature) over x >= threshold; their number in *num.
  double (*sum_weights)(const float* x, int64_t count, float largest, float temperature,
                        float threshold, int64_t* num);
  // The same of x in [from, to], in bins of equal width.
  void (*bin_weights)(const float* x, int64_t count, float largest, float temperature, float from,
                      float to, WeightBins& bins);

  double (*peak_flops)(
      int64_t iterations);  // runs that many rounds; floating-point operations done
  float (*read_bytes)(const void* data,
                      int64_t bytes);  // reads all, returns a sum to keep it alive
};

inline constexpr int64_t kLogitsPiece = 64;

extern const Raw kAvx2;
extern const Raw kAvx512;

// The signatures of Raw::linear and Raw::linear_float8. With AMX row_begin is a multiple of 16.
void linear_avx512_bf16(const LinearRaw& a, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                        int64_t panel_end);
void linear_narrow_avx512_bf16(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                               int64_t row_end, int64_t panel_begin, int64_t panel_end,
                               uint16_t* memory);
// Those of Raw; rows are i8 here, zero up to a multiple of 4, and their sum (an int) behind that.
void linear_bytes_avx512_vnni(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                              int64_t row_end, int64_t panel_begin, int64_t panel_end,
                              uint16_t* memory);
void byte_row_avx512_vnni(const int8_t* x, int64_t count, void* out);
void linear_amx(const LinearRaw& a, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end);
// `memory`: tiles_memory(). The second one: rows are i8, and so are the weights.
void linear_narrow_amx(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                       int64_t row_end, int64_t panel_begin, int64_t panel_end, uint16_t* memory);
void linear_bytes_amx(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                      int64_t row_end, int64_t panel_begin, int64_t panel_end, uint16_t* memory);

// Raw::low_rank with the first products by vdpbf16ps.
void low_rank_avx512_bf16(const LowRankRaw& a);

// Floating-point operations done by `iterations` rounds of independent dot products in registers.
double peak_flops_avx512_bf16(int64_t iterations);
double peak_flops_amx(int64_t iterations);

}  // namespace nereid::kernels::cpu
