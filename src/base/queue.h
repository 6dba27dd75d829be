// Blocking multi-producer queue that can be closed; the engine's inbox and the outbox are such
// queues. It takes no memory beyond the largest number of items that it has held.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace nereid {

template <class T>
class Queue {
 public:
  // False when the queue is closed; the item is then dropped by the caller.
  bool push(T item) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return false;
      items_.push_back(std::move(item));
    }
    ready_.notify_one();
    return true;
  }

  // Moves everything queued into `out`, oldest first, replacing its contents and reusing its
  // memory. Blocks until there is an item only if `may_sleep`, at most for `most_sleep`. False:
  // closed and drained.
  bool take_all(std::vector<T>& out, bool may_sleep, std::chrono::microseconds most_sleep = {}) {
    out.clear();
    std::unique_lock lock(mutex_);
    const auto is_ready = [&] { return closed_ || num_queued() > 0; };
    if (may_sleep)
      ready_.wait(lock, is_ready);
    else if (most_sleep.count() > 0)
      ready_.wait_for(lock, most_sleep, is_ready);
    if (num_queued() == 0) return !closed_;
    drop_taken();
    out.swap(items_);
    items_.reserve(out.capacity());
    return true;
  }

  // The oldest item; blocks until there is one. nullopt: closed and drained.
  std::optional<T> take() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return closed_ || num_queued() > 0; });
    if (num_queued() == 0) return std::nullopt;
    T item = std::move(items_[num_taken_++]);
    // Compaction at half: each item is moved at most once on average.
    if (2 * num_taken_ >= items_.size()) drop_taken();
    return item;
  }

  // No more pushes; takers drain what is left, then get nullopt.
  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  size_t size() const {
    std::lock_guard lock(mutex_);
    return num_queued();
  }

 private:
  static std::vector<T> with_room() {
    std::vector<T> items;
    items.reserve(16);
    return items;
  }
  size_t num_queued() const { return items_.size() - num_taken_; }
  void drop_taken() {
    items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(num_taken_));
    num_taken_ = 0;
  }

  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<T> items_ = with_room();
  size_t num_taken_ = 0;  // items at the front of items_ that were taken
  bool closed_ = false;
};

}  // namespace nereid
