// See workers.h.
#include "front/http/workers.h"

#include <sys/resource.h>
#include <unistd.h>

#include <exception>

#include "base/log_limit.h"

namespace nereid::front {
namespace {

// An event loop that wakes up then runs within milliseconds, and workers still have a third of the
// processor time of a thread of the usual niceness.
constexpr int kNicer = 5;

// On Linux niceness is a thread's own.
void let_others_run_first() {
  const auto thread = static_cast<id_t>(::gettid());
  const int niceness = getpriority(PRIO_PROCESS, thread);
  static_cast<void>(setpriority(PRIO_PROCESS, thread, niceness + kNicer));
}

}  // namespace

Workers::Workers(int num_threads) {
  const auto run = [this] {
    let_others_run_first();
    while (auto job = jobs_.take()) {
      try {
        (*job)();
      } catch (const std::exception& e) {
        static LogLimit log;
        log.error("while working for a request: {}", e.what());  // its exchange says so, too
      }
    }
  };
  try {
    for (int i = 0; i < num_threads; ++i) threads_.emplace_back(run);
  } catch (const std::system_error&) {  // no more threads: those that run must end first
    jobs_.close();
    for (auto& thread : threads_) thread.join();
    throw;
  }
}

Workers::~Workers() {
  jobs_.close();
  for (auto& thread : threads_) thread.join();
}

void Workers::push(std::function<void()> job) { static_cast<void>(jobs_.push(std::move(job))); }

}  // namespace nereid::front
