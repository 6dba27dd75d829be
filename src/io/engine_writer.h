// Writes an engine file weight by weight: the model is never held in memory, and readers see the
// finished file or none.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "io/plan.h"

namespace nereid::io {

// Gives every weight of the plan its planes, and those their places in the blob, in table order.
void place_weights(Plan& plan);

class EngineWriter {
 public:
  // `plan` must have placed weights; their checksums are filled in here. Creates a temporary file
  // beside `path`. Unavailable with the system's reason.
  static StatusOr<EngineWriter> create(const std::filesystem::path& path, Plan plan,
                                       std::string build_key);

  // The same in memory, without a folder: the file is there for this process, by the path that
  // finish() leaves in path(), until close_memory_engine().
  static StatusOr<EngineWriter> create_in_memory(Plan plan, std::string build_key);

  // Writes a file without weights, which come from directory `checkpoint` (not empty) later.
  static Status write_plan(const std::filesystem::path& path, Plan plan, std::string build_key,
                           std::string checkpoint);

  // Writes a rank's file: `tensors` is a safetensors image, not empty.
  static Status write_rank(const std::filesystem::path& path, Plan plan, std::string build_key,
                           int32_t rank, std::span<const std::byte> tensors);

  EngineWriter(EngineWriter&& other) noexcept;
  EngineWriter& operator=(EngineWriter&&) = delete;
  ~EngineWriter();  // removes the temporary file unless finished

  // The next bytes of the weights' planes, in table order; pieces may have any size but do not
  // cross from one plane into the next. Unavailable when the disk is full and so on.
  Status append(std::span<const std::byte> bytes);

  // Writes the header, makes the file durable and gives it its name. Internal when weights are
  // incomplete.
  Status finish();

  const std::filesystem::path& path() const { return path_; }

 private:
  EngineWriter() = default;
  Status begin(Plan plan, std::string build_key);
  Status flush();
  Status write_at(uint64_t offset, std::span<const std::byte> bytes);
  std::string header_text() const;
  void measure_header();
  Status write_header(uint64_t blob_bytes);

  std::filesystem::path path_;
  std::string temporary_;  // empty once it is gone, and of one in memory
  int fd_ = -1;
  Plan plan_;
  std::string build_key_;
  std::string checkpoint_;     // of a file without weights
  std::string rank_checksum_;  // of a rank's file
  int32_t rank_ = 0;           // likewise
  uint64_t blob_offset_ = 0;
  size_t header_bytes_ = 0;
  size_t weight_ = 0, plane_ = 0;  // being written
  uint64_t written_ = 0;           // bytes of the plane that left the buffer
  std::vector<std::byte> buffer_;
};

// Gives up an engine in memory; who has it open keeps it. False, and nothing happens, for a path of
// another kind.
bool close_memory_engine(const std::filesystem::path& path);

// Does so at the end of its scope.
class MemoryEngineCloser {
 public:
  explicit MemoryEngineCloser(std::filesystem::path path) : path_(std::move(path)) {}
  MemoryEngineCloser(const MemoryEngineCloser&) = delete;
  MemoryEngineCloser& operator=(const MemoryEngineCloser&) = delete;
  ~MemoryEngineCloser() { close_memory_engine(path_); }

 private:
  const std::filesystem::path path_;
};

}  // namespace nereid::io
