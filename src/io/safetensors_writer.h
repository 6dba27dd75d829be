// Writes a safetensors file tensor by tensor: the model is never held in memory, and readers see
// the finished file or none.
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

// A tensor to be written: its place in the file follows from the order.
struct TensorInfo {
  std::string name;
  DType type = DType::kBF16;
  std::vector<int64_t> shape;

  uint64_t bytes() const;
};

class SafetensorsWriter {
 public:
  // Creates a temporary file beside `path`; its header says of which rank it is, if of one.
  // Unavailable with the system's reason.
  static StatusOr<SafetensorsWriter> create(const std::filesystem::path& path,
                                            std::span<const TensorInfo> tensors,
                                            std::optional<int32_t> rank = {});

  // Likewise, but the temporary file has a name of its own and stays when it is not finished; one
  // that an earlier writer left goes on behind the first `done` bytes of tensors. InvalidArgument
  // when it has fewer, or another header.
  static StatusOr<SafetensorsWriter> resume(const std::filesystem::path& path,
                                            std::span<const TensorInfo> tensors, uint64_t done);

  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  ~SafetensorsWriter();  // removes the temporary file unless finished, or resumable

  // The next bytes of the tensors, in order. Unavailable when the disk is full and so on.
  Status append(std::span<const std::byte> bytes);

  // Makes what was appended durable: how many bytes of tensors that are.
  StatusOr<uint64_t> sync();

  // Makes the file durable and gives it its name. Internal when bytes are missing or too many.
  Status finish();

 private:
  SafetensorsWriter() = default;

  std::filesystem::path path_;
  std::string temporary_;  // empty once it is gone
  int fd_ = -1;
  bool stays_ = false;
  uint64_t written_ = 0, missing_ = 0;  // bytes of tensors; still to come
};

}  // namespace nereid::io
