// Blocking multi-producer queue that can be closed; the engine inbox and the outbox are instances
// of it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
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

  // Everything queued, oldest first. Sleeps until there is something only if `may_sleep`.
  // nullopt: closed and drained.
  std::optional<std::vector<T>> take_all(bool may_sleep) {
    std::unique_lock lock(mutex_);
    if (may_sleep) ready_.wait(lock, [&] { return closed_ || !items_.empty(); });
    if (closed_ && items_.empty()) return std::nullopt;
    std::vector<T> out(std::make_move_iterator(items_.begin()),
                       std::make_move_iterator(items_.end()));
    items_.clear();
    return out;
  }

  // Oldest item; sleeps until there is one. nullopt: closed and drained.
  std::optional<T> take() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return closed_ || !items_.empty(); });
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
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
    return items_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace nereid
