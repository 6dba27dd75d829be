// Writes an engine file weight by weight, without the model in memory; readers see the finished
// file or none.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "io/plan.h"

namespace nereid::io {

// Sets the planes of all weights and their offsets in the blob, in table order.
void place_weights(Plan& plan);

class EngineWriter {
 public:
  // `plan` must have placed weights; checksums are filled in here. Creates a temporary file next to
  // `path`. Unavailable with the system's reason.
  static StatusOr<EngineWriter> create(const std::filesystem::path& path, Plan plan,
                                       std::string build_key);

  // In memory, without a directory. This process can read it at the path() that finish() sets,
  // until it calls close_memory_engine().
  static StatusOr<EngineWriter> create_in_memory(Plan plan, std::string build_key);

  // Writes a file without weights; `checkpoint` (not empty): directory of the weights.
  static Status write_plan(const std::filesystem::path& path, Plan plan, std::string build_key,
                           std::string checkpoint);

  // Writes a rank's file; `tensors`: a safetensors image, not empty.
  static Status write_rank(const std::filesystem::path& path, Plan plan, std::string build_key,
                           int32_t rank, std::span<const std::byte> tensors);

  EngineWriter(EngineWriter&& other) noexcept;
  EngineWriter& operator=(EngineWriter&&) = delete;
  ~EngineWriter();  // removes an unfinished temporary file

  // Appends bytes of the weights' planes in table order; pieces must not cross planes. Unavailable:
  // disk full etc.
  Status append(std::span<const std::byte> bytes);

  // Writes the header, syncs the file and renames it. Internal: weights are incomplete.
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
  std::string temporary_;  // empty once renamed, and in memory
  int fd_ = -1;
  Plan plan_;
  std::string build_key_;
  std::string checkpoint_;     // of a file without weights
  std::string rank_checksum_;  // of a rank's file
  int32_t rank_ = 0;           // of a rank's file
  uint64_t blob_offset_ = 0;
  size_t header_bytes_ = 0;
  size_t weight_ = 0, plane_ = 0;  // being written
  uint64_t written_ = 0;           // bytes of the plane behind the buffer
  std::vector<std::byte> buffer_;
};

// Releases an engine in memory; open files stay valid. False: `path` is not in memory.
bool close_memory_engine(const std::filesystem::path& path);

// Calls close_memory_engine() at the end of its scope.
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
