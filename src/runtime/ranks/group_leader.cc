// The thread of a leader of processes.
#include "runtime/ranks/group_leader.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <utility>

namespace nereid::runtime {

void GroupLeader::is_stopping() {
  is_stopping_ = true;
  wake_.notify();
}

void GroupLeader::watch(std::function<void()> look) {
  thread_ = std::thread([this, look = std::move(look)] {
    // Signals are for the threads of the server.
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    while (!is_over_) look();
  });
}

void GroupLeader::end_watch() {
  is_over_ = true;
  wake_.notify();
  if (thread_.joinable()) thread_.join();
}

void GroupLeader::request_stop() {
  if (!is_stopping_.exchange(true)) ::kill(::getpid(), SIGTERM);
}

}  // namespace nereid::runtime
