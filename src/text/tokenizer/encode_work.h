// A bound on the work of encoding one text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>

#include "base/status.h"

namespace nereid::text {

// Bounds the work of all stages of a tokenizer file on a text: each stage charges its work to the
// same account. A unit is a byte read or written.
class EncodeWork {
 public:
  // Per byte of the text; tokenizers take up to about 50.
  static constexpr size_t kUnitsPerByte = 256;
  static constexpr size_t kFreeUnits = 1 << 20;  // for any text
  static constexpr size_t kBytesPerByte = 32;    // growth limit of the normalised text
  static constexpr size_t kFreeBytes = 64 << 10;
  static constexpr size_t kUnitsToAsk = 1 << 18;

  // `is_unwanted`, if set, is called every kUnitsToAsk units.
  explicit EncodeWork(size_t text_bytes, const std::function<bool()>& is_unwanted = {})
      : text_bytes_(text_bytes),
        left_(kFreeUnits + text_bytes * kUnitsPerByte),
        ask_below_(is_unwanted ? left_ : 0),
        is_unwanted_(is_unwanted) {}

  // ResourceExhausted beyond the bound, Cancelled when `is_unwanted` returns true.
  Status charge(size_t units) {
    if (units > left_) return excess();
    left_ -= units;
    return left_ < ask_below_ ? ask() : ok();
  }
  // The largest size of the text between two stages.
  size_t max_bytes() const { return kFreeBytes + text_bytes_ * kBytesPerByte; }
  Status check_bytes(size_t size) const {
    if (size <= max_bytes()) return ok();
    return resource_exhausted(
        "the tokenizer's stages make more than {} bytes of a text of {} bytes", max_bytes(),
        text_bytes_);
  }
  // Calls `is_unwanted` at once, for work whose time does not follow from its bytes.
  Status ask() {
    if (is_unwanted_ && is_unwanted_())
      return cancelled("the request was cancelled while its text was tokenised");
    ask_below_ = left_ - std::min(left_, kUnitsToAsk);
    return ok();
  }

 private:
  Status excess() const {
    return resource_exhausted("the tokenizer takes more than {} steps for a text of {} bytes",
                              kFreeUnits + text_bytes_ * kUnitsPerByte, text_bytes_);
  }
  size_t text_bytes_;
  size_t left_;
  size_t ask_below_;
  std::function<bool()> is_unwanted_;
};

}  // namespace nereid::text
