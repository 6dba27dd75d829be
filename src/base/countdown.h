// A countdown in the log while something is waited for.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace nereid {

class Countdown {
 public:
  // Calls `say` on a thread of its own with the seconds left until `deadline`, at once and then
  // every second until the destructor. Without memory for a thread `say` is not called.
  Countdown(Time deadline, std::function<void(int64_t)> say) {
    try {
      thread_ = std::thread([this, deadline, say = std::move(say)] { run(deadline, say); });
    } catch (const std::system_error&) {
    }
  }
  ~Countdown() {
    {
      std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  Countdown(const Countdown&) = delete;
  Countdown& operator=(const Countdown&) = delete;

 private:
  void run(Time deadline, const std::function<void(int64_t)>& say) {
    std::unique_lock lock(mutex_);
    do {
      const auto left = std::chrono::round<std::chrono::seconds>(deadline - now());
      say(std::max<int64_t>(0, left.count()));
    } while (!over_.wait_for(lock, std::chrono::seconds(1), [this] { return is_over_; }));
  }

  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace nereid
