// Reader of PyTorch files (since 1.6): a zip archive with a pickle, data.pkl, and a file per
// storage. The pickle is not executed (io/pickle.h). Source: torch/serialization.py of PyTorch.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "io/checkpoint.h"

namespace nereid::io {

// Parses a file's bytes, which must outlive the tensors; several may share a storage. `header` (may
// be null): the pickle. InvalidArgument with tensor and reason.
StatusOr<std::vector<StoredTensor>> parse_torch_file(std::span<const std::byte> file,
                                                     std::span<const std::byte>* header = nullptr);

}  // namespace nereid::io
