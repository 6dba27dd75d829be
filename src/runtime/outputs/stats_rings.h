// Bounded queues of statistics and events from engine to readers; the oldest entries are dropped.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "nereid/stats.h"
#include "runtime/outputs/batch_recorder.h"
#include "runtime/outputs/prefix_watch.h"

namespace nereid::runtime {

// Keeps the newest `capacity` items; take() empties it. Thread-safe.
template <class T>
class Ring {
 public:
  explicit Ring(int32_t capacity) : capacity_(static_cast<size_t>(capacity)) {
    constexpr size_t kMostAtOnce = 1024;  // larger buffers grow as they fill
    items_.reserve(std::min(capacity_, kMostAtOnce));
  }

  bool enabled() const { return capacity_ > 0; }

  void push(T item) {
    if (!enabled()) return;
    std::lock_guard lock(mutex_);
    if (items_.size() < capacity_) return items_.push_back(std::move(item));
    items_[oldest_] = std::move(item);
    oldest_ = (oldest_ + 1) % capacity_;
  }

  std::vector<T> take_all() {
    std::lock_guard lock(mutex_);
    std::rotate(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(oldest_),
                items_.end());
    std::vector<T> all(std::make_move_iterator(items_.begin()),
                       std::make_move_iterator(items_.end()));
    items_.clear();  // keeps its memory
    oldest_ = 0;
    return all;
  }

 private:
  const size_t capacity_;
  std::mutex mutex_;
  std::vector<T> items_;
  size_t oldest_ = 0;  // index in items_ once it is full
};

struct StatsRings {
  Ring<IterationStats> iterations;
  Ring<RequestStatsPerIteration> requests;
  Ring<KvCacheEvent> events;
  BatchRecorder batch;
  PrefixWatch prefixes;
};

}  // namespace nereid::runtime
