// Quantised matrices of safetensors files, each made of several tensors: integers packed into
// words, bytes with scales, four-bit floats. Matrices of floats that lie in one tensor.
// Sources of the layouts: AutoGPTQ and GPTQModel (qlinear), AutoAWQ (packing_utils), compressed-
// tensors (compressors/quantized_compressors), transformers (integrations/mxfp4, finegrained_fp8),
// bitsandbytes (functional), TensorRT Model Optimizer (export/quant_utils), torchao
// (quantization/quantize_/workflows).
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "io/checkpoint.h"

namespace nereid::io {

// Where integers of [n, k] lie in words of 32 bits, each from its lowest bits on.
enum class Packing : uint8_t {
  kInputs,       // [k / per word, n]: neighbours along k share a word (GPTQ)
  kOutputs,      // [k, n / per word]: neighbours along n, as 0 2 4 6 1 3 5 7 (AWQ, four bits)
  kRows,         // [n, k / per word]: neighbours along k (compressed-tensors)
  kPairsOfRows,  // bytes [n / 2, k], signed: rows 2 i in the low halves (Model Optimizer)
  kBytes,        // [n, k], signed; eight bits
};

// The tensors of one matrix; null where the layout or the checkpoint has none.
struct PackedTensors {
  const StoredTensor* data = nullptr;
  // Floats [groups, n]; of the last three packings [n, groups], but with `offsets`.
  const StoredTensor* scales = nullptr;
  // Packed along n, of kOutputs in its order: [groups, n]; of kRows [n, groups].
  const StoredTensor* zeros = nullptr;
  const StoredTensor* index = nullptr;   // i32 [k]: the group of each column
  const StoredTensor* inputs = nullptr;  // floats [k]: factor of each column
  // Floats [groups, n], in the place of `zeros`: what signed integers times the scale are moved by,
  // multiples of the scale.
  const StoredTensor* offsets = nullptr;
};
struct PackedLayout {
  Packing packing = Packing::kInputs;
  int32_t bits = 4;
  int64_t group = 0;       // columns of a group; 0: the whole row
  int32_t zero_shift = 0;  // what is added to a stored zero point
};

// The functions below give a tensor [n, k] with the name `name`, or InvalidArgument naming the
// tensor that does not fit, and how. The bytes of the parts have to outlive it.

StatusOr<StoredTensor> packed_integers(std::string name, const PackedTensors& parts,
                                       const PackedLayout& layout);

// i8 or f8e4m3 numbers [n, k] times `factor` times a scale: one for all, or one for each block of
// `block_rows` x `block_cols` (0: all of them); of f8e4m3 scales may be exponents of two (u8, with
// a bias of 127). `zeros`: null, or i8 like the scales. `inputs`: null, or floats [k], a factor of
// each column.
struct ScaledTensors {
  const StoredTensor* data = nullptr;
  const StoredTensor* scales = nullptr;
  const StoredTensor* zeros = nullptr;
  const StoredTensor* inputs = nullptr;
};
struct ScaledLayout {
  int64_t block_rows = 1, block_cols = 0;
  float factor = 1;
  bool byte_inputs = false;  // products with i8 numbers round their inputs to i8 as well
  bool divides = false;      // columns are divided by `inputs`
};
StatusOr<StoredTensor> scaled_bytes(std::string name, const ScaledTensors& parts,
                                    const ScaledLayout& layout);

// Integers from -8 to 7, two of a row in a byte, the first in the lower half: times the scale of
// their group, plus its offset, times the column's factor (torchao).
struct NibbleTensors {
  const StoredTensor* data = nullptr;     // i8 or u8 [n, k / 2]
  const StoredTensor* scales = nullptr;   // floats [groups, n]
  const StoredTensor* offsets = nullptr;  // like the scales
  const StoredTensor* inputs = nullptr;   // null, or floats [k]
};
StatusOr<StoredTensor> offset_nibbles(std::string name, const NibbleTensors& parts);

// The same integers, 8 more, as NVIDIA's matrix units take them (torchao's tile_packed_to_4d). A
// tile is 8 rows of 16 columns: lane 4 * row + i has its columns 2 i, 2 i + 1, 2 i + 8, 2 i + 9. A
// word has two tiles that follow each other along the columns: from the lowest four bits on the
// first of each pair of columns, then the second ones.
struct TiledTensors {
  const StoredTensor* data = nullptr;    // i32 [rows / 8, columns / 32 words, 32, words]
  const StoredTensor* scales = nullptr;  // floats [groups, rows, 2]: the scale and the offset
  const StoredTensor* inputs = nullptr;  // null, or floats [k]
};
// What rows and columns beyond [n, k] have fills up the tiles; 0: all count.
StatusOr<StoredTensor> tiled_nibbles(std::string name, const TiledTensors& parts, int64_t n = 0,
                                     int64_t k = 0);

// e2m1 numbers, two in a byte, the first in the lower half, with a scale for each 16 or 32.
struct E2m1Tensors {
  const StoredTensor* data = nullptr;    // u8 [..., n, k / 2] or [..., n, k / 32, 16]
  const StoredTensor* scales = nullptr;  // u8 (powers of two, e8m0) or f8e4m3: [..., n, k / group]
  const StoredTensor* factor = nullptr;  // one f32 for all: multiplied, or divided by
  bool divide = false;
  bool turned = false;  // the tensor that it stands for is [..., k, n], see StoredTensor
};
StatusOr<StoredTensor> e2m1_blocks(std::string name, const E2m1Tensors& parts);

// Rows [first, first + n) of matrix `index` of floats [count, rows, k]; `turned`: of [count, k,
// rows].
struct StackPart {
  int64_t index = 0, first = 0, n = 0;
  bool turned = false;
};
StatusOr<StoredTensor> part_of_stack(std::string name, const StoredTensor& stack,
                                     const StackPart& part);

// bitsandbytes' four bits: rows of a table, flat, the first in the upper half of a byte, times the
// largest magnitude of their block; which may be rounded to rows of a table itself.
struct TableTensors {
  const StoredTensor* data = nullptr;           // u8 [n * k / 2, 1]
  const StoredTensor* table = nullptr;          // f32 [16]
  const StoredTensor* largest = nullptr;        // f32, or u8 with the two below: [n * k / block]
  const StoredTensor* largest_table = nullptr;  // f32 [256]
  const StoredTensor* largest_scale = nullptr;  // f32 [ceil(blocks / outer)]
};
struct TableLayout {
  int64_t n = 0, k = 0;
  int64_t block = 64, outer = 256;
  float offset = 0;  // of the largest magnitudes
};
StatusOr<StoredTensor> table_nibbles(std::string name, const TableTensors& parts,
                                     const TableLayout& layout);

}  // namespace nereid::io
