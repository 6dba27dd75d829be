// The tensors of a GGUF file (base/gguf.h).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "io/checkpoint.h"

namespace nereid::io {

// Parses a file's bytes, which must outlive the tensors; order by position. Unreadable quantised
// tensors have no data. `header` (may be null): the part before the data. InvalidArgument with key
// or tensor and reason.
StatusOr<std::vector<StoredTensor>> parse_gguf_tensors(
    std::span<const std::byte> file, std::span<const std::byte>* header = nullptr);

}  // namespace nereid::io
