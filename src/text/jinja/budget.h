// What a template may spend, and the error that stops it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>

namespace nereid::text::jinja {

// Thrown inside this folder only; Template turns it into a Status.
struct Error {
  std::string message;
  int line = 0;           // filled by the innermost statement when 0
  bool is_limit = false;  // a resource limit, not a fault in the template
  int column = 0;         // of a template that does not parse, in characters from 1; 0 = none
};

struct Limits {
  size_t max_steps = 10'000'000;          // evaluated nodes and bulk work
  size_t max_memory = size_t{256} << 20;  // bytes ever made into values, freed or not
  size_t max_output = size_t{64} << 20;   // bytes of rendered text
  // Asked every Budget::kStepsToAsk steps, where it is set; true ends the rendering (Cancelled).
  std::function<bool()> is_unwanted = {};
};

// Nobody waits for the text any more.
struct Unwanted {};

// All work of a rendering is charged here before it is done, a step standing for up to 0.1 us. It
// throws Error at the limit, and Unwanted.
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
  // Reading or writing `bytes` of text.
  void scan(size_t bytes) { work(1 + bytes / 64); }
  // Call before the memory is taken.
  void memory(size_t bytes) {
    if (bytes > memory_left_) throw Error{"template uses too much memory", 0, true};
    memory_left_ -= bytes;
    scan(bytes);
  }

  // Looking up what each character of `bytes` of text is, or becomes.
  void classify(size_t bytes) { work(1 + bytes / 2); }
  // Looking for `size` bytes in `bytes` of text: find_text() compares up to 256 of them at a place.
  void search(size_t bytes, size_t size) {
    scan(bytes);
    work(bytes / 64 * (std::min<size_t>(size, 256) / 32));
    scan(size);
  }
  size_t steps_left() const { return steps_left_; }

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
