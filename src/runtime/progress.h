// What any thread may know of the engine: a snapshot of its figures, and when everything is done.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "nereid/executor.h"

namespace nereid::runtime {

class Progress {
 public:
  // Takes `count` places in the waiting queue; false and none when they are more than are left of
  // `max_queue_size`. Any thread.
  bool enter_queue(int64_t count, int32_t max_queue_size);
  bool has_room(int32_t max_queue_size) const { return num_queued() < max_queue_size; }
  int32_t num_queued() const;
  // The engine: `count` requests started, or ended without starting.
  void leave_queue(int32_t count);

  // Counts `bytes` of logits as promised to a client; false and none when they are more than are
  // left of `max_logits_bytes`. Any thread.
  bool promise_logits(int64_t bytes, int64_t max_logits_bytes);
  int64_t promised_logits() const;

  // A request was accepted; it stays open until its final response was delivered, which keeps the
  // promise of its logits.
  void opened();
  void closed(int64_t logits_bytes);

  // The engine's thread hangs: it is idle from now on, with nothing queued, whatever it still says.
  void abandon();

  // The engine, once per turn. `idle`: nothing waits, runs or is in flight.
  void publish(const ExecutorStats& stats, bool idle);

  ExecutorStats stats() const;

  // True when no request is open and the engine is idle; false when `timeout` passed before that.
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
