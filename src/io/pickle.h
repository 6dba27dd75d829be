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
  std::string_view group;  // key of the dictionary that it is in; empty: the outermost one
  std::string_view name;
  std::string_view storage_type;  // "FloatStorage"
  std::string_view storage;       // file name in the archive: "0"
  int64_t offset = 0;             // elements
  std::vector<int64_t> shape, stride;
};

// An integer, or a boolean, of an inner dictionary.
struct PickledNumber {
  std::string_view group, name;
  int64_t value = 0;
};

struct PickledFile {
  std::vector<PickledTensor> tensors;  // in order
  std::vector<PickledNumber> numbers;
};

// A pickled dictionary of tensors, and of dictionaries of tensors and numbers; or a single
// unnamed tensor. InvalidArgument with position and opcode, global, or key without a
// tensor; at most a million values are allowed in a file.
StatusOr<PickledFile> parse_pickled_file(std::span<const std::byte> pickle);

}  // namespace nereid::io
