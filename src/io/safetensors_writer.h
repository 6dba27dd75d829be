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

  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  ~SafetensorsWriter();  // removes the temporary file unless finished

  // The next bytes of the tensors, in order. Unavailable when the disk is full and so on.
  Status append(std::span<const std::byte> bytes);

  // Makes the file durable and gives it its name. Internal when bytes are missing or too many.
  Status finish();

 private:
  SafetensorsWriter() = default;

  std::filesystem::path path_;
  std::string temporary_;  // empty once it is gone
  int fd_ = -1;
  uint64_t missing_ = 0;  // bytes still to come
};

}  // namespace nereid::io
