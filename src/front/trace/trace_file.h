// Files of finished traces: JSON arrays that are complete at any time.
#pragma once

#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

namespace nereid::front {

// FILE and FILE.0, FILE.1, ... Thread safe. A failed write is logged; its traces are lost.
class TraceFile {
 public:
  explicit TraceFile(std::string path) : path_(std::move(path)) {}
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  const std::string& path() const { return path_; }
  // Adds JSON values, separated by commas, to FILE, which the first call truncates.
  void append(std::string_view values);
  // Writes the next FILE.N with these values.
  void write_numbered(std::string_view values);

 private:
  const std::string path_;
  std::mutex mutex_;
  std::FILE* file_ = nullptr;
  bool failed_ = false;
  uint64_t next_number_ = 0;
};

}  // namespace nereid::front
