// NumPy array files (.npy, versions 1 and 2; numpy/lib/format.py). Parsed bytes are hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace nereid::io {

struct NpyArray {
  std::string type;  // "<f2": little-endian, kind, bytes per element; "|V2": two bytes of any kind
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // row-major
};

// Parses a file's bytes, which must outlive the array. InvalidArgument with the reason.
StatusOr<NpyArray> parse_npy(std::span<const std::byte> file);

// Bytes of a file.
std::string serialize_npy(const NpyArray& array);

}  // namespace nereid::io
