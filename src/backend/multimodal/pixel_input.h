// Pixel values of requests to the model multimodal_encoders.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/common/triton.h"
#include "base/status.h"

namespace nereid::backend {

struct PixelValues {
  int64_t batch = 1, pictures = 0;  // of an item
  std::vector<uint16_t> values;     // [batch, pictures, 3, side, side], bits of bf16 numbers
};

// The input `pixel_values`, else `IMAGE`: FP16, BF16 or FP32 [batch, pictures, 3, side, side].
// Unimplemented: an input of another kind of model; InvalidArgument: a fault. Both name the input.
StatusOr<PixelValues> read_pixel_values(const Request& request, int32_t side);

// Rows [batch, pictures * rows of a picture, width] as the tensors OUT_PROMPT_EMBEDDING_TABLE, of
// type FP16, BF16 or FP32, and OUT_PROMPT_VOCAB_SIZE. Unimplemented: another type, or a number that
// FP16 does not hold.
StatusOr<std::vector<Output>> table_outputs(std::span<const uint16_t> rows, int64_t batch,
                                            int64_t width, TRITONSERVER_DataType type);

}  // namespace nereid::backend
