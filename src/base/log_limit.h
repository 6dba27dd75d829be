// A rate limit for log messages that clients can cause.
#pragma once

#include <fmt/format.h>

#include <mutex>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace nereid {

// A rate limit for one log statement, static beside it: a few lines in each window of time.
// Suppressed lines are counted, and the next line written has the count. Any thread.
class LogLimit {
 public:
  explicit LogLimit(int lines = 10, std::chrono::seconds window = std::chrono::seconds(10))
      : lines_(lines), window_(window) {}

  template <class... Args>
  void warn(LogFormat<Args...> format, Args&&... args) {
    write_at(spdlog::level::warn, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void error(LogFormat<Args...> format, Args&&... args) {
    write_at(spdlog::level::err, format, std::forward<Args>(args)...);
  }

  // Calls `out(text)` unless the limit is reached.
  template <class Out, class... Args>
  void write(const Out& out, fmt::format_string<Args...> format, Args&&... args) {
    size_t left_out = 0;
    if (!may_write(now(), left_out)) return;
    std::string text = fmt::format(format, std::forward<Args>(args)...);
    if (left_out > 0) text += fmt::format(" ({} more messages like this were left out)", left_out);
    out(text);
  }

 private:
  template <class... Args>
  void write_at(spdlog::level::level_enum level, const LogFormat<Args...>& format, Args&&... args) {
    write([&](const std::string& text) { log_at(level, format.place, "{}", text); }, format.text,
          std::forward<Args>(args)...);
  }

  bool may_write(Time time, size_t& left_out) {
    std::lock_guard lock(mutex_);
    if (time >= window_end_) {
      window_end_ = time + window_;
      num_written_ = 0;
    }
    if (num_written_ == lines_) {
      ++num_left_out_;
      return false;
    }
    ++num_written_;
    left_out = std::exchange(num_left_out_, 0);
    return true;
  }

  const int lines_;
  const std::chrono::seconds window_;
  std::mutex mutex_;
  Time window_end_;
  int num_written_ = 0;
  size_t num_left_out_ = 0;
};

}  // namespace nereid
