#include "cli/process/restarts.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/log.h"

namespace nereid::cli {
namespace {

class Restarts {
 public:
  explicit Restarts(const std::function<int()>& run) : run_(run) {
    sigemptyset(&signals_);
    for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&signals_, signal);
    ::pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~Restarts() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  // The exit code, 128 + signal of a killed process.
  int run_once() {
    const pid_t parent = ::getpid();
    child_ = ::fork();
    if (child_ < 0) {
      log_error("fork: {}", std::strerror(errno));
      return 1;
    }
    if (child_ == 0) run_child(parent);
    int status = 0;
    while (::waitpid(child_, &status, WNOHANG) != child_) {
      const int signal = ::sigwaitinfo(&signals_, nullptr);
      if (signal == SIGTERM || signal == SIGINT) stop(signal);
    }
    child_ = -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  // Until `delay` has passed, or it is stopped.
  void wait(Duration delay) {
    for (const Time end = now() + delay; !is_stopping_ && now() < end;) {
      const auto left = std::chrono::ceil<std::chrono::nanoseconds>(end - now()).count();
      constexpr int64_t kSecond = 1'000'000'000;
      const timespec limit{.tv_sec = std::max<int64_t>(left, 0) / kSecond,
                           .tv_nsec = std::max<int64_t>(left, 0) % kSecond};
      const int signal = ::sigtimedwait(&signals_, nullptr, &limit);
      if (signal == SIGTERM || signal == SIGINT) stop(signal);
    }
  }

  bool is_stopping() const { return is_stopping_; }

 private:
  // In a group of its own: signals of the terminal come through the parent, once.
  [[noreturn]] void run_child(pid_t parent) const {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::setpgid(0, 0);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    std::_Exit(run_());
  }

  void stop(int signal) {
    is_stopping_ = true;
    if (child_ > 0) ::kill(child_, signal);
  }

  const std::function<int()>& run_;
  sigset_t signals_{}, before_{};
  pid_t child_ = -1;
  bool is_stopping_ = false;
};

}  // namespace

int run_with_restarts(const std::function<int()>& run, const RestartDelays& delays) {
  Restarts restarts(run);
  for (Duration delay = delays.first;;) {
    const Time start = now();
    const int code = restarts.run_once();
    if (code == 0 || restarts.is_stopping()) return code;
    if (now() - start >= delays.last) delay = delays.first;
    log_info("the process has ended with code {} and is started again in {:.3g} s", code,
             seconds(delay));
    restarts.wait(delay);
    if (restarts.is_stopping()) return code;
    delay = std::min(2 * delay, delays.last);
  }
}

}  // namespace nereid::cli
