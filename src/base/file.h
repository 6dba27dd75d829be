// Whole-file reads and atomic writes with errors that name the path.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid {

// The whole file. NotFound / ResourceExhausted (larger than max_bytes) / Unavailable (read error).
StatusOr<std::string> read_file(const std::filesystem::path& path,
                                size_t max_bytes = size_t{1} << 30);

// Writes to a temporary name beside `path` and renames: readers see the old file or the new one,
// never half.
Status write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

// $NEREID_CACHE_DIR, else $XDG_CACHE_HOME/nereid, else ~/.cache/nereid, else /tmp/nereid-<uid>.
std::filesystem::path cache_dir();

}  // namespace nereid
