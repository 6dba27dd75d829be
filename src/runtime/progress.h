// Shared state of the engine for any thread: statistics, queue places, idleness.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "nereid/executor.h"

namespace nereid::runtime {

class Progress {
 public:
  // Reserves `count` queue places; false: none, fewer are left of `max_queue_size`. Thread-safe.
  bool enter_queue(int64_t count, int32_t max_queue_size);
  bool has_room(int32_t max_queue_size) const { return num_queued() < max_queue_size; }
  int32_t num_queued() const;
  // Engine thread: `count` requests started, or ended without starting.
  void leave_queue(int32_t count);

  // Reserves `bytes` of logits for a client; false: none, because fewer are left of
  // `max_logits_bytes`. Thread-safe.
  bool promise_logits(int64_t bytes, int64_t max_logits_bytes);
  int64_t promised_logits() const;

  // opened(): a request was accepted; closed(): its final response was delivered; frees its logits.
  void opened();
  void closed(int64_t logits_bytes);

  // The engine thread hangs: counts as idle with an empty queue from now on.
  void abandon();

  // Engine thread, once per turn. `idle`: no sequence waits, runs or is in flight.
  void publish(const ExecutorStats& stats, bool idle);

  ExecutorStats stats() const;

  // True: no request is open and the engine is idle; false: `timeout` has passed.
  bool wait_idle(std::chrono::milliseconds timeout) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  ExecutorStats stats_;
  bool idle_ = true;
  bool abandoned_ = false;
  int64_t num_open_ = 0;
  int32_t num_queued_ = 0;
  int64_t promised_logits_ = 0;  // bytes
};

}  // namespace nereid::runtime
