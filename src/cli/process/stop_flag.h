// SIGINT and SIGTERM as a flag, for work that can leave a state to go on from.
#pragma once

#include <signal.h>

#include <atomic>

namespace nereid::cli {

// Takes both signals during its life; a second one ends the process at once. One at a time.
class StopFlag {
 public:
  StopFlag();
  ~StopFlag();
  StopFlag(const StopFlag&) = delete;
  StopFlag& operator=(const StopFlag&) = delete;

  const std::atomic<bool>& is_set() const;
  int signal() const;  // 0: none yet

 private:
  struct sigaction old_int_ {
  }, old_term_{};
};

}  // namespace nereid::cli
