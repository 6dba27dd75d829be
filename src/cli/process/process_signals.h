// Signals of a serving process.
#pragma once

#include <signal.h>

#include <functional>
#include <thread>

namespace nereid::cli {

// Blocks SIGTERM and SIGINT in this thread and those that it starts, so that they stay pending
// until taken; ignores SIGPIPE. To be called before any thread starts.
sigset_t block_stop_signals();

// Takes the first of the blocked `signals` during its life and calls `act`.
class OnSignal {
 public:
  // `act` runs on a thread of its own, with the signal.
  OnSignal(const sigset_t& signals, std::function<void(int)> act);
  ~OnSignal();  // later signals stay pending
  OnSignal(const OnSignal&) = delete;
  OnSignal& operator=(const OnSignal&) = delete;

 private:
  int signal_fd_ = -1, done_fd_ = -1;
  std::thread thread_;
};

// Ends the process as an unblocked `signal` does: for a long start with nothing to finish.
[[noreturn]] void end_by(int signal);

// Installs handlers that print the stack to standard error when the process crashes, except for
// signals that already have a handler (a sanitizer's).
void print_stack_on_crash();

}  // namespace nereid::cli
