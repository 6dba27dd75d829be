// Progress: one mutex, held for a few assignments.
#include "runtime/progress.h"

#include <algorithm>

namespace nereid::runtime {

bool Progress::enter_queue(int64_t count, int32_t max_queue_size) {
  std::lock_guard lock(mutex_);
  if (num_queued_ + count > max_queue_size) return false;
  if (!abandoned_) num_queued_ += static_cast<int32_t>(count);
  return true;
}

int32_t Progress::num_queued() const {
  std::lock_guard lock(mutex_);
  return num_queued_;
}

void Progress::leave_queue(int32_t count) {
  std::lock_guard lock(mutex_);
  if (!abandoned_) num_queued_ -= count;
}

void Progress::abandon() {
  {
    std::lock_guard lock(mutex_);
    abandoned_ = idle_ = true;
    num_queued_ = 0;
    stats_.num_active = stats_.num_waiting = 0;
  }
  changed_.notify_all();
}

bool Progress::promise_logits(int64_t bytes, int64_t max_logits_bytes) {
  std::lock_guard lock(mutex_);
  if (bytes > max_logits_bytes - promised_logits_) return false;
  promised_logits_ += bytes;
  return true;
}

int64_t Progress::promised_logits() const {
  std::lock_guard lock(mutex_);
  return promised_logits_;
}

void Progress::opened() {
  std::lock_guard lock(mutex_);
  ++num_open_;
}

void Progress::closed(int64_t logits_bytes) {
  {
    std::lock_guard lock(mutex_);
    --num_open_;
    promised_logits_ -= logits_bytes;
  }
  changed_.notify_all();
}

void Progress::publish(const ExecutorStats& stats, bool idle) {
  {
    std::lock_guard lock(mutex_);
    if (abandoned_) return;
    stats_ = stats;
    idle_ = idle;
  }
  if (idle) changed_.notify_all();
}

ExecutorStats Progress::stats() const {
  std::lock_guard lock(mutex_);
  ExecutorStats stats = stats_;
  // Requests on their way to the engine are waiting too.
  stats.num_waiting += num_queued_;
  return stats;
}

bool Progress::wait_idle(std::chrono::milliseconds timeout) const {
  // Longer timeouts would overflow the clock.
  constexpr std::chrono::milliseconds kLongest = std::chrono::years(100);
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::min(timeout, kLongest),
                           [&] { return idle_ && num_open_ == 0; });
}

}  // namespace nereid::runtime
