// Directory of an uncompressed zip archive, as written by PyTorch. The bytes are hostile: positions
// are proven. Format: APPNOTE.TXT 6.3.9 (PKWARE), zip64 included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace nereid::io {

struct ZipEntry {
  std::string_view name;
  std::span<const std::byte> data;
};

// The archive's files by position; names and data point into `file`. InvalidArgument with the file:
// not an archive, over a million files; compressed, encrypted, out of bounds, overlapping.
StatusOr<std::vector<ZipEntry>> parse_zip(std::span<const std::byte> file);

}  // namespace nereid::io
