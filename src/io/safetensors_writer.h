// Writes a safetensors file tensor by tensor, without the model in memory; readers see the finished
// file or none.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"

namespace nereid::io {

// A tensor to be written, positioned by order.
struct TensorInfo {
  std::string name;
  DType type = DType::kBF16;
  std::vector<int64_t> shape;

  uint64_t bytes() const;
};

class SafetensorsWriter {
 public:
  // Creates a temporary file next to `path`. Unavailable: system error. `rank`: in the header.
  static StatusOr<SafetensorsWriter> create(const std::filesystem::path& path,
                                            std::span<const TensorInfo> tensors,
                                            std::optional<int32_t> rank = {});

  // Writes under a fixed temporary name, kept if unfinished; an existing file is continued behind
  // the first `done` bytes of tensors. InvalidArgument: it has fewer, or another header.
  static StatusOr<SafetensorsWriter> resume(const std::filesystem::path& path,
                                            std::span<const TensorInfo> tensors, uint64_t done);

  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  ~SafetensorsWriter();  // removes an unfinished temporary file, unless resumable

  // Appends bytes of the tensors in order. Unavailable: disk full etc.
  Status append(std::span<const std::byte> bytes);

  // Syncs appended bytes; returns the number of durable tensor bytes.
  StatusOr<uint64_t> sync();

  // Syncs the file and renames it. Internal: missing or excess bytes.
  Status finish();

 private:
  SafetensorsWriter() = default;

  std::filesystem::path path_;
  std::string temporary_;  // empty once renamed
  int fd_ = -1;
  bool stays_ = false;
  uint64_t written_ = 0, missing_ = 0;  // tensor bytes written; missing
};

}  // namespace nereid::io
