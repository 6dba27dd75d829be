// Limits of a rendering, and the error at a limit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>

namespace nereid::text::jinja {

// Thrown inside this folder only; Template turns it into a Status.
struct Error {
  std::string message;
  int line = 0;           // set by the innermost statement when 0
  bool is_limit = false;  // a resource limit, not an error of the template
  int column = 0;         // for parse errors, in characters from 1; 0 = none
};

struct Limits {
  size_t max_steps = 10'000'000;          // evaluated nodes and bulk work
  size_t max_memory = size_t{256} << 20;  // bytes allocated for values in all, freed or not
  size_t max_output = size_t{64} << 20;   // bytes of rendered text
  // Called every Budget::kStepsToAsk steps, if set; true ends the rendering (Cancelled).
  std::function<bool()> is_unwanted = {};
};

// Thrown when is_unwanted() has returned true.
struct Unwanted {};

// The account of a rendering: work is charged before it is done, a step being up to 0.1 us. Throws
// Error at a limit, and Unwanted.
class Budget {
 public:
  static constexpr size_t kStepsToAsk = 1 << 14;

  explicit Budget(const Limits& limits)
      : steps_left_(limits.max_steps),
        memory_left_(limits.max_memory),
        is_unwanted_(limits.is_unwanted),
        ask_below_(is_unwanted_ ? steps_left_ : 0) {}

  void work(size_t steps = 1) {
    if (steps > steps_left_) throw Error{"template takes too many steps", 0, true};
    steps_left_ -= steps;
    if (steps_left_ < ask_below_) ask();
  }
  // Charges reading or writing `bytes` of text.
  void scan(size_t bytes) { work(1 + bytes / 64); }
  // Charges memory; to be called before the allocation.
  void memory(size_t bytes) {
    if (bytes > memory_left_) throw Error{"template uses too much memory", 0, true};
    memory_left_ -= bytes;
    scan(bytes);
  }

  // Charges a table look-up for each character of `bytes` of text.
  void classify(size_t bytes) { work(1 + bytes / 2); }
  // Charges a search for `size` bytes in `bytes` of text: find_text() compares up to 256 of
  // them at a position.
  void search(size_t bytes, size_t size) {
    scan(bytes);
    work(bytes / 64 * (std::min<size_t>(size, 256) / 32));
    scan(size);
  }

 private:
  void ask() {
    if (is_unwanted_()) throw Unwanted();
    ask_below_ = steps_left_ - std::min(steps_left_, kStepsToAsk);
  }

  size_t steps_left_;
  size_t memory_left_;
  std::function<bool()> is_unwanted_;
  size_t ask_below_;
};

}  // namespace nereid::text::jinja
