// A bound on the work of compiling one grammar.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "base/status.h"

namespace nereid::text {

// Steps of about a tenth of a microsecond, counted rather than timed: a refusal does not
// depend on the machine.
class WorkLimit {
 public:
  static constexpr int64_t kMost = 10'000'000;

  WorkLimit() = default;
  // A lower limit than kMost, after which the work may be repeated with more. `wanted` is called
  // every few milliseconds; false ends the work. It may be empty.
  explicit WorkLimit(int64_t most, std::function<bool()> wanted = {})
      : left_(most), wanted_(std::move(wanted)) {}

  // InvalidArgument: no steps are left, or `wanted` has returned false.
  Status spend(int64_t steps) {
    if (steps > left_) left_ = 0;
    if (left_ == 0) return invalid_argument("this takes more than {} steps to prepare", kMost);
    left_ -= steps;
    unasked_ += steps;
    if (unasked_ >= kAskEvery) ask();
    return ok();
  }

  // Calls `wanted`.
  bool ask() {
    unasked_ = 0;
    if (!wanted_ || wanted_()) return true;
    is_unwanted_ = true;
    left_ = 0;
    return false;
  }
  bool is_used_up() const { return left_ == 0; }
  bool is_unwanted() const { return is_unwanted_; }

 private:
  static constexpr int64_t kAskEvery = 50'000;

  int64_t left_ = kMost;
  int64_t unasked_ = 0;
  std::function<bool()> wanted_;
  bool is_unwanted_ = false;
};

}  // namespace nereid::text
