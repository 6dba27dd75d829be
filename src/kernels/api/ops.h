// Op contracts. Activations are token-packed: n rows, no padding. Sums are accumulated in f32;
// every op fixes its reduction order independently of n, so a row's result never depends on its
// neighbours (on CPU).
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/api/sample.h"
#include "tensor/view.h"

namespace nereid::kernels {

// How a [N, K] bf16 weight matrix is stored.
enum class WeightLayout : uint8_t {
  kRowMajor = 0,  // N rows of K
  // ceil(N/16) panels, each ceil32(K)/2 groups of 16 rows x 2 consecutive k: the B tile of AMX and
  // the operand of vdpbf16ps; rows and columns past N and K are zero.
  kPanel16 = 1,
};

struct WeightView {
  const void* data = nullptr;  // bf16
  WeightLayout layout = WeightLayout::kRowMajor;
  int64_t n = 0, k = 0;
};

// out[i] = table[token(i)]; a token id t < 0 stands for slot_tokens[-1 - t] (sampled by the step
// before, host unaware). An id outside the vocabulary (such as the -1 of a failed draw) gives
// zeros.
struct Embed {
  static constexpr std::string_view kName = "embed";
  struct Problem {
    int64_t tokens = 1, vocab = 0, hidden = 0;
    WeightLayout layout = WeightLayout::kRowMajor;
  };
  struct Args {
    Problem problem;
    const int32_t* tokens = nullptr;       // [n]
    const int32_t* slot_tokens = nullptr;  // [slots]
    WeightView table;                      // [vocab, hidden]
    View out;                              // f32 [n, hidden]
  };
};

// residual += add (when add is given); out = residual / rms(residual) * weight, rms over hidden
// with eps.
struct Norm {
  static constexpr std::string_view kName = "norm";
  struct Problem {
    int64_t tokens = 1, hidden = 0;
    bool has_add = false;
    DType out = DType::kBF16;
  };
  struct Args {
    Problem problem;
    View residual;                 // f32 [n, hidden], updated in place when has_add
    View add;                      // f32 [n, hidden]
    const void* weight = nullptr;  // bf16 [hidden]
    float eps = 0;
    View out;  // bf16 or f32 [n, hidden]
  };
};

// out = x . weight^T + bias. Products bf16 x bf16, sums f32.
struct Linear {
  static constexpr std::string_view kName = "linear";
  struct Problem {
    int64_t tokens = 1, n = 0, k = 0;
    WeightLayout layout = WeightLayout::kRowMajor;
    bool has_bias = false;
    DType out = DType::kF32;
  };
  struct Args {
    Problem problem;
    View x;                      // bf16 [n, k]
    WeightView weight;           // [n_out, k]
    const void* bias = nullptr;  // bf16 [n_out]
    View out;                    // f32 or bf16 [n, n_out]
  };
};

// Rotates pairs (i, i + d/2) of each query and key head by the angle table row of the token's
// position. Table: f32 [max_positions, d] = d/2 cosines, then d/2 sines (scaling such as YaRN's
// attention factor included).
struct Rope {
  static constexpr std::string_view kName = "rope";
  struct Problem {
    int64_t tokens = 1;
    int32_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  };
  struct Args {
    Problem problem;
    View qkv;                            // f32 [n, (heads + 2 kv_heads) * d], in place
    const int32_t* positions = nullptr;  // [n]
    const float* table = nullptr;
  };
};

// How the keys of a block's head lie.
enum class KeyLayout : uint8_t {
  kLines = 0,  // [block, d]
  // [block / 16, d / w, 16, w], w elements in 32 bits: sixteen keys side by side, so that a vector
  // of a query's scores takes no transposition. For blocks of a multiple of 16 positions and a d
  // that is a multiple of 4.
  kPanels = 1,
};

// Paged causal attention over a step's rows. First stores K and V of the new tokens in the cache,
// then the query at position i attends to the cached positions j <= i with j > i - window or j <
// sink (without a window: all). A block that no query of the call sees is not looked at: its entry
// in the table may be anything. With rope_table set, Q and K are rotated on the way (the fused form
// of Rope). Cache of one layer: V blocks [num_blocks, kv_heads, block, d] of type `kv`, K likewise
// or in panels (KeyLayout).
// A bf16 cache holds rounded values. An i8 or f8e4m3 cache holds, for a vector x of one token and
// head, scale = amax / L (L = 127 or 448) and x * (L / amax), rounded to nearest even; it stands
// for scale * stored. A vector with amax < kSmallestScaled is stored as zeros with scale 0; one
// that is not finite gets the scale NaN.
struct Attention {
  static constexpr std::string_view kName = "attention";
  struct Problem {
    int64_t tokens = 1;
    int32_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
    int32_t block_tokens = 32;  // positions per block
    int32_t window = 0;         // 0 = all
    bool has_rope = false;
    int32_t sink = 0;  // leading positions that stay visible beyond the window
    DType kv = DType::kBF16;
    KeyLayout keys = KeyLayout::kLines;
  };
  struct Args {
    Problem problem;
    View qkv;                   // f32 [n, (heads + 2 kv_heads) * d]
    void* k_cache = nullptr;    // of type kv
    void* v_cache = nullptr;    // of type kv
    float* k_scales = nullptr;  // [num_blocks, kv_heads, block] for the types that have scales
    float* v_scales = nullptr;
    float scale = 0;  // of the scores, usually 1 / sqrt(d)
    const float* rope_table = nullptr;
    const int32_t* positions = nullptr;     // [n]
    int32_t num_rows = 0;                   // sequences in this step
    const int32_t* row_begin = nullptr;     // [num_rows + 1] first token of each row
    const int32_t* row_of_token = nullptr;  // [n]
    const int32_t* block_table = nullptr;   // [num_rows, max_blocks]
    int32_t max_blocks = 0;
    int32_t max_length = 0;  // longest sequence in the step after it, in positions
    View out;                // bf16 [n, heads * d]
  };
};

inline constexpr float kSmallestScaled = 0x1p-100f;

// Types of a KV cache; those of one byte have scales.
constexpr bool has_kv_scales(DType kv) { return kv == DType::kI8 || kv == DType::kF8E4M3; }

enum class Activation : uint8_t { kSilu, kGeluTanh, kGelu };

// out = act(gate) * up, with x = [gate | up].
struct Glu {
  static constexpr std::string_view kName = "glu";
  struct Problem {
    int64_t tokens = 1, width = 0;
    Activation activation = Activation::kSilu;
  };
  struct Args {
    Problem problem;
    View x;    // f32 [n, 2 * width]
    View out;  // bf16 [n, width]
  };
};

// x += y.
struct Add {
  static constexpr std::string_view kName = "add";
  struct Problem {
    int64_t tokens = 1, width = 0;
  };
  struct Args {
    Problem problem;
    View x;  // f32 [n, width], in place
    View y;  // f32 [n, width]
  };
};

// out[i] = x[rows[i]].
struct GatherRows {
  static constexpr std::string_view kName = "gather_rows";
  struct Problem {
    int64_t rows = 1, width = 0;
  };
  struct Args {
    Problem problem;
    View x;                         // f32 [n, width]
    const int32_t* rows = nullptr;  // [m]
    View out;                       // f32 [m, width]
  };
};

}  // namespace nereid::kernels
