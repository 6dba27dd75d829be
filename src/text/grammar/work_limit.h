// How long making one grammar may take.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace nereid::text {

// Steps of about a tenth of a microsecond, counted rather than timed: what is refused does not
// depend on the machine.
class WorkLimit {
 public:
  static constexpr int64_t kMost = 10'000'000;

  // InvalidArgument: there are no more steps.
  Status spend(int64_t steps) {
    if (steps > left_) left_ = 0;
    if (left_ == 0) return invalid_argument("this takes more than {} steps to prepare", kMost);
    left_ -= steps;
    return ok();
  }

 private:
  int64_t left_ = kMost;
};

}  // namespace nereid::text
