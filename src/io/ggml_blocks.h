// Quantised GGUF tensors: rows of blocks with scales. Source: ggml-common.h, ggml-quants.c of ggml.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "io/encoding.h"

namespace nereid::io {

// Numbers and bytes of a block of a ggml_type.
struct GgmlBlock {
  int64_t numbers = 0;
  int64_t bytes = 0;
};

// {0, 0}: a type that ggml_blocks() cannot read.
GgmlBlock ggml_block(uint32_t type);

// A matrix whose rows of `cols` are whole blocks, of a type known to ggml_block().
std::shared_ptr<const Encoding> ggml_blocks(uint32_t type, std::span<const std::byte> data,
                                            int64_t cols);

}  // namespace nereid::io
