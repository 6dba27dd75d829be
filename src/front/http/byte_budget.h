// How many bytes of requests and replies a process holds for its clients.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "base/status.h"

namespace nereid::front {

inline constexpr size_t kDefaultBudgetBytes = size_t{4} << 30;

// One for all front ends of a process. Any thread.
class ByteBudget {
 public:
  explicit ByteBudget(size_t limit = kDefaultBudgetBytes) : limit_(limit) {}
  size_t used() const { return used_.load(std::memory_order_relaxed); }
  size_t limit() const { return limit_; }
  bool is_full() const { return used() > limit_; }
  // Requests that do not come on must make room for others.
  bool is_tight() const { return used() > limit_ / 2; }
  Status refusal() const {
    return unavailable("the server holds more than {} bytes of requests and replies", limit_);
  }

 private:
  friend class BudgetShare;
  const size_t limit_;
  std::atomic<size_t> used_{0};
};

// The part of one request, given back when this goes. Not thread-safe.
class BudgetShare {
 public:
  BudgetShare() = default;
  explicit BudgetShare(std::shared_ptr<ByteBudget> budget, size_t bytes = 0)
      : budget_(std::move(budget)) {
    set(bytes);
  }
  BudgetShare(BudgetShare&& other) noexcept
      : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}
  BudgetShare& operator=(BudgetShare&& other) noexcept {
    set(0);
    budget_ = std::move(other.budget_);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~BudgetShare() { set(0); }

  // Little is not worth counting: the number of connections and streams bounds it.
  void set(size_t bytes) {
    constexpr size_t kLittle = 4096;
    if (bytes <= kLittle) bytes = 0;
    if (budget_ == nullptr || bytes == bytes_) return;
    budget_->used_.fetch_add(bytes - bytes_, std::memory_order_relaxed);  // may wrap around
    bytes_ = bytes;
  }
  // More than what a request of the usual kind needs: such ones are refused when the budget is
  // full.
  bool is_large() const { return bytes_ > (size_t{64} << 10); }

 private:
  std::shared_ptr<ByteBudget> budget_;
  size_t bytes_ = 0;
};

}  // namespace nereid::front
