// The budget of memory for clients: bytes of requests and replies in a process.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>

#include "base/status.h"

namespace nereid::front {

inline constexpr size_t kDefaultBudgetBytes = size_t{4} << 30;

// A client must read this much of an answer, or all of it, in each write timeout; in kTightTimeout
// while the budget is tight and the answer is large.
inline constexpr size_t kLeastProgressBytes = size_t{64} << 10;
// Timeout of large requests and answers that make no progress while the budget is tight.
inline constexpr std::chrono::milliseconds kTightTimeout{1000};

// The byte counter shared by all front ends of a process. Any thread.
class ByteBudget {
 public:
  explicit ByteBudget(size_t limit = kDefaultBudgetBytes) : limit_(limit) {}
  size_t used() const { return used_.load(std::memory_order_relaxed); }
  size_t limit() const { return limit_; }
  bool is_full() const { return used() > limit_; }
  // Above half: stalled large requests and answers are ended to make room.
  bool is_tight() const { return used() > limit_ / 2; }
  Status refusal() const {
    return unavailable("the server holds more than {} bytes of requests and replies", limit_);
  }

  // Counts bytes without a BudgetShare. Unavailable: a large amount over the limit,
  // which is not counted.
  Status hold(size_t bytes) {
    if (bytes <= kLittle) return ok();
    used_.fetch_add(bytes, std::memory_order_relaxed);
    if (bytes <= kLargeAmount || !is_full()) return ok();
    release(bytes);
    return unavailable("{}; this one needs {} more", message(refusal()), bytes);
  }
  void release(size_t bytes) {
    if (bytes > kLittle) used_.fetch_sub(bytes, std::memory_order_relaxed);
  }

 private:
  friend class BudgetShare;
  // Smaller amounts are not counted: the number of connections and streams bounds them.
  static constexpr size_t kLittle = 4096;
  // Larger amounts are refused when the budget is full; typical requests need less.
  static constexpr size_t kLargeAmount = size_t{64} << 10;

  const size_t limit_;
  std::atomic<size_t> used_{0};
};

// The counted bytes of one request, released by the destructor. Not thread safe.
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

  void set(size_t bytes) {
    if (bytes <= ByteBudget::kLittle) bytes = 0;
    if (budget_ == nullptr || bytes == bytes_) return;
    budget_->used_.fetch_add(bytes - bytes_, std::memory_order_relaxed);  // may wrap around
    bytes_ = bytes;
  }
  // Counts `bytes` before they are allocated. Unavailable when that makes the share large and the
  // budget is full; the former count then stays.
  Status reserve(size_t bytes) {
    const size_t before = bytes_;
    set(bytes);
    if (bytes_ <= before || !is_large() || !budget_->is_full()) return ok();
    set(before);
    return unavailable("{}; this one needs {}", message(budget_->refusal()), bytes);
  }
  bool is_large() const { return bytes_ > ByteBudget::kLargeAmount; }

 private:
  std::shared_ptr<ByteBudget> budget_;
  size_t bytes_ = 0;
};

}  // namespace nereid::front
