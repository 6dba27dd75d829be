// Progress: one mutex, held for a few assignments.
#include "runtime/progress.h"

namespace nereid::runtime {

bool Progress::enter_queue(int32_t max_queue_size) {
  std::lock_guard lock(mutex_);
  if (num_queued_ >= max_queue_size) return false;
  ++num_queued_;
  return true;
}

void Progress::leave_queue(int32_t count) {
  std::lock_guard lock(mutex_);
  num_queued_ -= count;
}

void Progress::opened() {
  std::lock_guard lock(mutex_);
  ++num_open_;
}

void Progress::closed() {
  {
    std::lock_guard lock(mutex_);
    --num_open_;
  }
  changed_.notify_all();
}

void Progress::publish(const ExecutorStats& stats, bool idle) {
  {
    std::lock_guard lock(mutex_);
    stats_ = stats;
    idle_ = idle;
  }
  if (idle) changed_.notify_all();
}

ExecutorStats Progress::stats() const {
  std::lock_guard lock(mutex_);
  ExecutorStats stats = stats_;
  // Requests on their way to the engine wait too.
  stats.num_waiting += num_queued_;
  return stats;
}

bool Progress::wait_idle(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return idle_ && num_open_ == 0; });
}

}  // namespace nereid::runtime
