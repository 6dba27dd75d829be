// Watches the engine's thread, which may hang in a call of the device's driver where no wait of
// ours can end it, and ends the process after a failure of the device where that is wanted.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "runtime/outbox.h"
#include "runtime/progress.h"
#include "tensor/health.h"

namespace nereid::runtime {

class Watchdog {
 public:
  // Starts the thread. `exits`: once the device has failed and all requests have been answered, the
  // process ends with exit code 1. All references must outlive it.
  Watchdog(Health& health, Outbox& outbox, Progress& progress, bool exits);
  ~Watchdog();

  // The engine's thread: its turn, and what it waits for in there, begins and ends.
  void turn_begins() { turn_.store(turn_.load(std::memory_order_relaxed) | 1); }
  void turn_ends() { turn_.store((turn_.load(std::memory_order_relaxed) | 1) + 1); }
  // It knows that the device has failed.
  void device_failed();

  // The engine's thread hangs: the device has failed, the outbox has answered all requests, and
  // nothing that the thread may use can be freed. Any thread.
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
