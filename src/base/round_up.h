// Rounding of sizes to alignments.
#pragma once

namespace nereid {

// The smallest multiple of `unit` that is not below `value`.
template <class T>
constexpr T round_up(T value, T unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace nereid
