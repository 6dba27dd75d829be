// See workers.h.
#include "front/http/workers.h"

#include <exception>

#include "base/log_limit.h"

namespace nereid::front {

Workers::Workers(int num_threads) {
  const auto run = [this] {
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
