// Reader of NumPy's array files (.npy, versions 1 and 2; numpy/lib/format.py). The bytes are
// hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace nereid::io {

struct NpyArray {
  std::string type;  // "<f2": little-endian, kind, bytes of an element
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // in row-major order
};

// Parses a whole file's bytes, which must outlive the array. InvalidArgument naming what is wrong.
StatusOr<NpyArray> parse_npy(std::span<const std::byte> file);

}  // namespace nereid::io
