// The directory of a zip archive whose files are stored as they are, as PyTorch writes them. The
// bytes are hostile: every place is proven. Format: APPNOTE.TXT 6.3.9 (PKWARE), zip64 included.
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

// The archive's files in the order of their places; names and data lie in `file`. InvalidArgument:
// no archive, more than a million files, one that is compressed, encrypted, outside or over
// another, naming it.
StatusOr<std::vector<ZipEntry>> parse_zip(std::span<const std::byte> file);

}  // namespace nereid::io
