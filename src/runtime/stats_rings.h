// Statistics and events on their way from the engine to whoever asks: bounded, the oldest go first.
#pragma once

#include <cstddef>
#include <deque>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "nereid/stats.h"

namespace nereid::runtime {

// Keeps the newest `capacity` items; taking empties it. Any thread.
template <class T>
class Ring {
 public:
  explicit Ring(int32_t capacity) : capacity_(static_cast<size_t>(capacity)) {}

  bool enabled() const { return capacity_ > 0; }

  void push(T item) {
    if (!enabled()) return;
    std::lock_guard lock(mutex_);
    if (items_.size() == capacity_) items_.pop_front();
    items_.push_back(std::move(item));
  }

  std::vector<T> take_all() {
    std::lock_guard lock(mutex_);
    std::vector<T> all(std::make_move_iterator(items_.begin()),
                       std::make_move_iterator(items_.end()));
    items_.clear();
    return all;
  }

 private:
  const size_t capacity_;
  std::mutex mutex_;
  std::deque<T> items_;
};

struct StatsRings {
  Ring<IterationStats> iterations;
  Ring<RequestStatsPerIteration> requests;
  Ring<KvCacheEvent> events;
};

}  // namespace nereid::runtime
