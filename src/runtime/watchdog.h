// Watches the engine thread, which may hang in a driver call that no timeout of ours ends, and ends
// the process after a device failure if configured.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "runtime/outputs/outbox.h"
#include "runtime/progress.h"
#include "tensor/health.h"

namespace nereid::runtime {

class Watchdog {
 public:
  // Starts the thread. `exits`: after a device failure the process ends with exit code 1, once all
  // requests have been answered. References must outlive it.
  Watchdog(Health& health, Outbox& outbox, Progress& progress, bool exits);
  ~Watchdog();

  // Engine thread: start and end of a turn, and of each wait inside it.
  void turn_begins() { turn_.store(turn_.load(std::memory_order_relaxed) | 1); }
  void turn_ends() { turn_.store((turn_.load(std::memory_order_relaxed) | 1) + 1); }
  // The engine thread has seen a device failure.
  void device_failed();

  // The engine thread hangs: the device has failed, all requests were answered, and memory that the
  // thread may use must be leaked. Thread-safe.
  bool gave_up() const { return gave_up_; }

 private:
  void run();
  void give_up(const Status& error);
  [[noreturn]] void leave_process();

  Health& health_;
  Outbox& outbox_;
  Progress& progress_;
  const bool exits_;
  std::atomic<uint64_t> turn_ = 0;  // odd: in a turn
  std::atomic<bool> gave_up_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false, has_failed_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace nereid::runtime
