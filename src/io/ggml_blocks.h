// Quantised tensors of GGUF files: rows of blocks, each with its scales.
// Source of the layouts: ggml-common.h and ggml-quants.c of ggml-org/ggml.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "io/encoding.h"

namespace nereid::io {

// How many numbers a block of a ggml_type has, in how many bytes.
struct GgmlBlock {
  int64_t numbers = 0;
  int64_t bytes = 0;
};

// Of a type that ggml_blocks() can read; of another: {0, 0}.
GgmlBlock ggml_block(uint32_t type);

// A matrix with rows of `cols`, which are whole blocks, of a type that ggml_block() knows.
std::shared_ptr<const Encoding> ggml_blocks(uint32_t type, std::span<const std::byte> data,
                                            int64_t cols);

}  // namespace nereid::io
