// How long making one grammar may take.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "base/status.h"

namespace nereid::text {

// Steps of about a tenth of a microsecond, counted rather than timed: what is refused does not
// depend on the machine.
class WorkLimit {
 public:
  static constexpr int64_t kMost = 10'000'000;

  WorkLimit() = default;
  // Fewer steps than kMost, after which the work may be tried again with more. `wanted` is asked
  // every few milliseconds; false ends the work. It may be empty.
  explicit WorkLimit(int64_t most, std::function<bool()> wanted = {})
      : left_(most), wanted_(std::move(wanted)) {}

  // InvalidArgument: there are no more steps, or nobody wants the grammar any more.
  Status spend(int64_t steps) {
    if (steps > left_) left_ = 0;
    if (left_ == 0) return invalid_argument("this takes more than {} steps to prepare", kMost);
    left_ -= steps;
    unasked_ += steps;
    if (unasked_ >= kAskEvery) ask();
    return ok();
  }

  // Asks whether somebody wants the grammar.
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
