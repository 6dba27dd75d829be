// Quantised matrices of safetensors files, of several tensors each: packed integers, bytes with
// scales, 4-bit floats; also slices of stacked float matrices. Sources of the layouts: AutoGPTQ and
// GPTQModel (qlinear), AutoAWQ (packing_utils), compressed-tensors
// (compressors/quantized_compressors), transformers (integrations/mxfp4, finegrained_fp8),
// bitsandbytes (functional), TensorRT Model Optimizer (export/quant_utils), torchao
// (quantization/quantize_/workflows).
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "io/checkpoint.h"

namespace nereid::io {

// Packing of integers [n, k] in 32-bit words, lowest bits first.
enum class Packing : uint8_t {
  kInputs,       // [k / per word, n]: a word has neighbours along k (GPTQ)
  kOutputs,      // [k, n / per word]: neighbours along n in the order 0 2 4 6 1 3 5 7 (AWQ, 4 bits)
  kRows,         // [n, k / per word]: neighbours along k (compressed-tensors)
  kPairsOfRows,  // bytes [n / 2, k], signed: rows 2 i in the low halves (Model Optimizer)
  kBytes,        // [n, k], signed 8 bits
};

// Tensors of a matrix; null: absent in the layout or checkpoint.
struct PackedTensors {
  const StoredTensor* data = nullptr;
  // Floats [groups, n]; for the last three packings [n, groups], unless `offsets` is set.
  const StoredTensor* scales = nullptr;
  // Packed along n, for kOutputs in its order: [groups, n]; for kRows [n, groups].
  const StoredTensor* zeros = nullptr;
  const StoredTensor* index = nullptr;   // i32 [k]: group of each column
  const StoredTensor* inputs = nullptr;  // floats [k]: factor of each column
  // Floats [groups, n] in place of `zeros`: added to integer * scale; multiples of the scale.
  const StoredTensor* offsets = nullptr;
};
struct PackedLayout {
  Packing packing = Packing::kInputs;
  int32_t bits = 4;
  int64_t group = 0;       // columns per group; 0: the whole row
  int32_t zero_shift = 0;  // added to stored zero points
};

// Each function below returns a tensor [n, k] named `name`; InvalidArgument with tensor and reason.
// The parts' bytes must outlive it.

StatusOr<StoredTensor> packed_integers(std::string name, const PackedTensors& parts,
                                       const PackedLayout& layout);

// i8 or f8e4m3 numbers [n, k] * `factor` * scale: one scale, or one per block of `block_rows` x
// `block_cols` (0: all); f8e4m3 scales may be u8 exponents of two (bias 127). `zeros`: null, or i8
// shaped as the scales. `inputs`: null, or floats [k], factor of each column.
struct ScaledTensors {
  const StoredTensor* data = nullptr;
  const StoredTensor* scales = nullptr;
  const StoredTensor* zeros = nullptr;
  const StoredTensor* inputs = nullptr;
};
struct ScaledLayout {
  int64_t block_rows = 1, block_cols = 0;
  float factor = 1;
  bool byte_inputs = false;  // products with i8 numbers round inputs to i8
  bool divides = false;      // columns are divided by `inputs`
};
StatusOr<StoredTensor> scaled_bytes(std::string name, const ScaledTensors& parts,
                                    const ScaledLayout& layout);

// torchao: integers -8 to 7, two per byte, first in the low half: (integer * group scale + group
// offset) * column factor.
struct NibbleTensors {
  const StoredTensor* data = nullptr;     // i8 or u8 [n, k / 2]
  const StoredTensor* scales = nullptr;   // floats [groups, n]
  const StoredTensor* offsets = nullptr;  // shape of the scales
  const StoredTensor* inputs = nullptr;   // null, or floats [k]
};
StatusOr<StoredTensor> offset_nibbles(std::string name, const NibbleTensors& parts);

// torchao's tile_packed_to_4d: the same integers + 8 in tensor core order. Tile: 8 rows x 16
// columns; lane 4 * row + i has columns 2 i, 2 i + 1, 2 i + 8, 2 i + 9. A word has two tiles
// adjacent along columns: from the lowest bits the first of each column pair, then the second ones.
struct TiledTensors {
  const StoredTensor* data = nullptr;    // i32 [rows / 8, columns / 32 words, 32, words]
  const StoredTensor* scales = nullptr;  // floats [groups, rows, 2]: scale and offset
  const StoredTensor* inputs = nullptr;  // null, or floats [k]
};
// Rows and columns beyond [n, k] are padding of tiles; 0: no padding.
StatusOr<StoredTensor> tiled_nibbles(std::string name, const TiledTensors& parts, int64_t n = 0,
                                     int64_t k = 0);

// e2m1 numbers, two per byte, first in the low half, with a scale per 16 or 32.
struct E2m1Tensors {
  const StoredTensor* data = nullptr;    // u8 [..., n, k / 2] or [..., n, k / 32, 16]
  const StoredTensor* scales = nullptr;  // u8 (powers of two, e8m0) or f8e4m3: [..., n, k / group]
  const StoredTensor* factor = nullptr;  // global f32 factor: multiplied, or divided by
  bool divide = false;
  bool transposed = false;  // transposed: the tensor is [..., k, n], see StoredTensor
};
StatusOr<StoredTensor> e2m1_blocks(std::string name, const E2m1Tensors& parts);

// Rows [first, first + n) of matrix `index` of [count, rows, k]; `transposed`: [count, k, rows].
struct StackPart {
  int64_t index = 0, first = 0, n = 0;
  bool transposed = false;
};
StatusOr<StoredTensor> part_of_stack(std::string name, const StoredTensor& stack,
                                     const StackPart& part);

// bitsandbytes 4-bit: flat table indices, first in the upper half of a byte, times the largest
// magnitude of their block, which may itself be a table index.
struct TableTensors {
  const StoredTensor* data = nullptr;           // u8 [n * k / 2, 1]
  const StoredTensor* table = nullptr;          // f32 [16]
  const StoredTensor* largest = nullptr;        // f32, or u8 with the next two: [n * k / block]
  const StoredTensor* largest_table = nullptr;  // f32 [256]
  const StoredTensor* largest_scale = nullptr;  // f32 [ceil(blocks / outer)]
};
struct TableLayout {
  int64_t n = 0, k = 0;
  int64_t block = 64, outer = 256;
  float offset = 0;  // added to the largest magnitudes
};
StatusOr<StoredTensor> table_nibbles(std::string name, const TableTensors& parts,
                                     const TableLayout& layout);

}  // namespace nereid::io
