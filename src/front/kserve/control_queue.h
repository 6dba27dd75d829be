// Threads for loads and unloads of models, which may take minutes.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/contained.h"

namespace nereid::front {

// A bounded number of jobs in parallel; more of them queue. A thread exists only while it has work.
class ControlQueue : public std::enable_shared_from_this<ControlQueue> {
 public:
  ControlQueue() = default;
  // Waits for the last unlock of a thread.
  ~ControlQueue() { std::lock_guard lock(mutex_); }
  ControlQueue(const ControlQueue&) = delete;
  ControlQueue& operator=(const ControlQueue&) = delete;

  // Throws when no thread can be started.
  void push(std::function<void()> job) {
    std::lock_guard lock(mutex_);
    if (num_threads_ < kMostThreads) {
      std::thread([self = shared_from_this()] { self->run(); }).detach();
      ++num_threads_;
    }
    jobs_.push_back(std::move(job));
  }

 private:
  static constexpr int kMostThreads = 16;

  void run() {
    std::unique_lock lock(mutex_);
    while (!jobs_.empty()) {
      auto job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      contained("load or unload of a model", job);
      job = nullptr;
      lock.lock();
    }
    --num_threads_;
  }

  std::mutex mutex_;
  std::deque<std::function<void()>> jobs_;
  int num_threads_ = 0;
};
using ControlQueuePtr = std::shared_ptr<ControlQueue>;

}  // namespace nereid::front
