#include "cli/process/process_signals.h"

#include <execinfo.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <utility>

namespace nereid::cli {
namespace {

// Calls only functions that POSIX allows in a handler, and glibc's backtrace after its first call.
void on_crash(int signal) {
  char text[] = "Signal (00) received.\n";
  text[8] = static_cast<char>('0' + signal / 10);
  text[9] = static_cast<char>('0' + signal % 10);
  static_cast<void>(!::write(STDERR_FILENO, text, sizeof text - 1));
  void* frames[64];
  ::backtrace_symbols_fd(frames, ::backtrace(frames, 64), STDERR_FILENO);
  end_by(signal);
}

}  // namespace

void end_by(int signal) {
  ::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);  // PID 1 of a container ignores default actions
}

sigset_t block_stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return signals;
}

OnSignal::OnSignal(const sigset_t& signals, std::function<void(int)> act)
    : signal_fd_(::signalfd(-1, &signals, SFD_CLOEXEC)), done_fd_(::eventfd(0, EFD_CLOEXEC)) {
  if (signal_fd_ < 0 || done_fd_ < 0) return;  // no file descriptor: signals stay pending
  thread_ = std::thread([this, signals, act = std::move(act)] {
    pollfd files[] = {{done_fd_, POLLIN, 0}, {signal_fd_, POLLIN, 0}};
    while (::poll(files, 2, -1) < 0 && errno == EINTR) {
    }
    // Both became readable at once: the signal stays pending for the next OnSignal.
    if (files[0].revents != 0) return;
    const timespec at_once{};
    const int received = ::sigtimedwait(&signals, nullptr, &at_once);
    if (received > 0) act(received);
  });
}

OnSignal::~OnSignal() {
  const uint64_t one = 1;
  static_cast<void>(!::write(done_fd_, &one, sizeof one));
  if (thread_.joinable()) thread_.join();
  if (signal_fd_ >= 0) ::close(signal_fd_);
  if (done_fd_ >= 0) ::close(done_fd_);
}

void print_stack_on_crash() {
  // The first call of backtrace() loads a library, which is not allowed in a handler.
  void* frame = nullptr;
  ::backtrace(&frame, 1);
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction action = {};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action.sa_handler = on_crash;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace nereid::cli
