// What signals do to a serving process.
#pragma once

#include <signal.h>

#include <functional>
#include <thread>

namespace nereid::cli {

// SIGTERM and SIGINT, blocked from here on in this thread and those that it starts, so that they
// wait to be taken; SIGPIPE is ignored. Call it before any thread starts.
sigset_t block_stop_signals();

// While this lives, the first blocked signal of `signals` is taken and acted upon.
class OnSignal {
 public:
  // `act` runs on a thread of its own, with the signal.
  OnSignal(const sigset_t& signals, std::function<void(int)> act);
  ~OnSignal();  // signals that come later wait again
  OnSignal(const OnSignal&) = delete;
  OnSignal& operator=(const OnSignal&) = delete;

 private:
  int signal_fd_ = -1, done_fd_ = -1;
  std::thread thread_;
};

// Ends the process as `signal` does when it is not blocked: for a start that takes minutes and has
// nothing to finish.
[[noreturn]] void end_by(int signal);

// Signals of a crash print the stack to standard error before they end the process, unless
// something else (a sanitizer) handles them already.
void print_stack_on_crash();

}  // namespace nereid::cli
