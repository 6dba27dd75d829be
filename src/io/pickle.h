// The part of Python's pickle format that a file of tensors needs: plain data and the names of
// tensors' storages. Nothing is ever called: an opcode or a global outside of the list is an error.
// Source: Lib/pickletools.py of CPython, torch/serialization.py of PyTorch.
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
  std::string_view storage;       // its file's name in the archive: "0"
  int64_t offset = 0;             // elements
  std::vector<int64_t> shape, stride;
};

// The tensors of a pickled dictionary, in its order, or a pickled tensor without a name.
// InvalidArgument naming the place, the opcode or the global, or the key that is no tensor; at most
// a million values.
StatusOr<std::vector<PickledTensor>> parse_pickled_tensors(std::span<const std::byte> pickle);

}  // namespace nereid::io
