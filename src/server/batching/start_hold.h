// Test hook: TRITONSERVER_DELAY_SCHEDULER and TRITONSERVER_BACKLOG_DELAY_SCHEDULER of the
// environment, as in the stock server, delay a batcher until that many requests wait, so that a
// test controls its batches.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <string_view>

namespace nereid::server {

class StartDelay {
 public:
  // `variable`: name of the environment variable. Text that is no number delays nothing.
  explicit StartDelay(const char* variable) {
    const char* value = std::getenv(variable);
    const std::string_view text = value != nullptr ? value : "";
    (void)std::from_chars(text.data(), text.data() + text.size(), count_);
  }

  bool is_set() const { return count_ > 0; }
  bool holds(size_t num_waiting) const { return num_waiting < count_; }
  void release() { count_ = 0; }

 private:
  size_t count_ = 0;
};

}  // namespace nereid::server
