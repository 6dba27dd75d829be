// The running requests of a model that calls others, and a thread that looks for cancelled ones.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/contained.h"

namespace nereid::backend {

// Run: has check_cancelled(), any thread.
template <class Run>
class RunWatch {
 public:
  static constexpr auto kCancelPeriod = std::chrono::milliseconds(50);

  RunWatch()
      : thread_([this] { run_contained("watch for cancelled requests", [this] { watch(); }); }) {}
  ~RunWatch() {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

  // `make(number, on_over)`: a run, which calls on_over() once; it is kept until then.
  template <class Make>
  std::shared_ptr<Run> add(Make make) {
    const uint64_t number = ++num_runs_;
    std::shared_ptr<Run> run = make(number, [this, number] {
      std::lock_guard lock(mutex_);
      runs_.erase(number);
    });
    std::lock_guard lock(mutex_);
    runs_[number] = run;
    return run;
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, kCancelPeriod, [&] { return closing_; })) {
      std::vector<std::shared_ptr<Run>> runs;
      for (const auto& [_, run] : runs_) runs.push_back(run);
      lock.unlock();
      for (const auto& run : runs) run->check_cancelled();
      runs.clear();
      lock.lock();
    }
  }

  std::atomic<uint64_t> num_runs_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<uint64_t, std::shared_ptr<Run>> runs_;
  bool closing_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace nereid::backend
