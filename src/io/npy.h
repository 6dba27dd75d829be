// NumPy's array files (.npy, versions 1 and 2; numpy/lib/format.py). What is read is hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace nereid::io {

struct NpyArray {
  std::string
      type;  // "<f2": little-endian, kind, bytes of an element; "|V2": two bytes of any kind
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // in row-major order
};

// Parses a whole file's bytes, which must outlive the array. InvalidArgument naming what is wrong.
StatusOr<NpyArray> parse_npy(std::span<const std::byte> file);

// A whole file.
std::string serialize_npy(const NpyArray& array);

}  // namespace nereid::io
