// The tensors of a GGUF file (base/gguf.h).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "io/checkpoint.h"

namespace nereid::io {

// Parses a whole file's bytes, which must outlive the tensors; order is by position in the file.
// Quantised tensors are there by name, type and shape, without data. `header` (may be null): what
// comes before the data. InvalidArgument naming key or tensor and what is wrong.
StatusOr<std::vector<StoredTensor>> parse_gguf_tensors(
    std::span<const std::byte> file, std::span<const std::byte>* header = nullptr);

}  // namespace nereid::io
