// See stop_flag.h.
#include "cli/process/stop_flag.h"

namespace nereid::cli {
namespace {

std::atomic<bool> stop_is_set = false;
std::atomic<int> stop_signal = 0;

void on_stop(int signal) {
  stop_signal = signal;
  stop_is_set = true;
}

}  // namespace

StopFlag::StopFlag() {
  stop_is_set = false;
  stop_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_stop;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, &old_int_);
  ::sigaction(SIGTERM, &action, &old_term_);
}

StopFlag::~StopFlag() {
  ::sigaction(SIGINT, &old_int_, nullptr);
  ::sigaction(SIGTERM, &old_term_, nullptr);
}

const std::atomic<bool>& StopFlag::is_set() const { return stop_is_set; }

int StopFlag::signal() const { return stop_signal; }

}  // namespace nereid::cli
