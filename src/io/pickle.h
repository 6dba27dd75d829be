// Subset of Python's pickle format for tensor files: plain data and storage names. Nothing is
// called: unknown opcodes and globals are errors. Source: Lib/pickletools.py of CPython,
// torch/serialization.py of PyTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace nereid::io {

struct PickledTensor {
  std::string_view name;
  std::string_view storage_type;  // "FloatStorage"
  std::string_view storage;       // file name in the archive: "0"
  int64_t offset = 0;             // elements
  std::vector<int64_t> shape, stride;
};

// Tensors of a pickled dictionary in order, or a single unnamed tensor. InvalidArgument with
// position and opcode, global, or key without a tensor; at most a million values.
StatusOr<std::vector<PickledTensor>> parse_pickled_tensors(std::span<const std::byte> pickle);

}  // namespace nereid::io
