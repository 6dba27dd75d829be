#include "front/trace/trace_file.h"

#include <cerrno>
#include <cstring>

#include "base/file.h"
#include "base/log.h"

namespace nereid::front {

TraceFile::~TraceFile() {
  if (file_ != nullptr) std::fclose(file_);
}

void TraceFile::append(std::string_view values) {
  std::lock_guard lock(mutex_);
  if (failed_) return;
  const bool first = file_ == nullptr;
  if (first) file_ = std::fopen(path_.c_str(), "we");
  // Later texts overwrite the closing bracket.
  const bool good = file_ != nullptr && (first || std::fseek(file_, -1, SEEK_END) == 0) &&
                    std::fputc(first ? '[' : ',', file_) != EOF &&
                    std::fwrite(values.data(), 1, values.size(), file_) == values.size() &&
                    std::fputc(']', file_) != EOF && std::fflush(file_) == 0;
  if (good) return;
  failed_ = true;
  log_error("trace file {}: {}; no more traces are written to it", path_, std::strerror(errno));
}

void TraceFile::write_numbered(std::string_view values) {
  std::string path;
  {
    std::lock_guard lock(mutex_);
    path = fmt::format("{}.{}", path_, next_number_++);
  }
  std::string text;
  text.reserve(values.size() + 2);
  text.append("[").append(values).append("]");
  if (const Status s = write_file_atomic(path, text); !s.ok()) {
    log_error("trace file {}: {}", path, message(s));
  }
}

}  // namespace nereid::front
