// What the encoding of one text may take.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>

#include "base/status.h"

namespace nereid::text {

// Bounds what a file's chain of stages, or its long tokens, can make of a text: each stage charges
// what it does, all of them together. A unit is a byte that is read or written.
class EncodeWork {
 public:
  static constexpr size_t kUnitsPerByte = 256;   // of the text; tokenizers take up to some 50
  static constexpr size_t kFreeUnits = 1 << 20;  // for whatever text
  static constexpr size_t kBytesPerByte = 32;    // a text may grow to, in its normalized form
  static constexpr size_t kFreeBytes = 64 << 10;
  static constexpr size_t kUnitsToAsk = 1 << 18;

  // `is_unwanted` is asked every kUnitsToAsk units, where it is set.
  explicit EncodeWork(size_t text_bytes, const std::function<bool()>& is_unwanted = {})
      : text_bytes_(text_bytes),
        left_(kFreeUnits + text_bytes * kUnitsPerByte),
        ask_below_(is_unwanted ? left_ : 0),
        is_unwanted_(is_unwanted) {}

  // ResourceExhausted beyond the bound, Cancelled when the text is unwanted.
  Status charge(size_t units) {
    if (units > left_) return excess();
    left_ -= units;
    return left_ < ask_below_ ? ask() : ok();
  }
  // The most bytes that the text may become between two stages.
  size_t max_bytes() const { return kFreeBytes + text_bytes_ * kBytesPerByte; }
  Status check_bytes(size_t size) const {
    if (size <= max_bytes()) return ok();
    return resource_exhausted(
        "the tokenizer's stages make more than {} bytes of a text of {} bytes", max_bytes(),
        text_bytes_);
  }
  // Asks at once, for work whose length its bytes do not tell.
  Status ask() {
    if (is_unwanted_ && is_unwanted_()) return cancelled("nobody waits for the tokens any more");
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
