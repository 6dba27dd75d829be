// What signals do to a serving process.
#pragma once

#include <signal.h>

#include <functional>
#include <thread>

namespace nereid::cli {

// SIGTERM and SIGINT, blocked from here on in this thread and those that it starts, so that they
// wait to be taken; SIGPIPE is ignored. Call it before any thread starts.
sigset_t block_stop_signals();

// While this lives, a blocked signal of `signals` ends the process at once, as if it were not
// blocked: for a start that takes minutes and has nothing to finish.
class EndOnSignal {
 public:
  // `clean_up` runs before the end, on a thread of its own.
  explicit EndOnSignal(const sigset_t& signals, std::function<void()> clean_up = {});
  ~EndOnSignal();  // signals that come later wait again
  EndOnSignal(const EndOnSignal&) = delete;
  EndOnSignal& operator=(const EndOnSignal&) = delete;

 private:
  int signal_fd_ = -1, done_fd_ = -1;
  std::thread thread_;
};

// Signals of a crash print the stack to standard error before they end the process, unless somebody
// else (a sanitizer) handles them already.
void print_stack_on_crash();

}  // namespace nereid::cli
