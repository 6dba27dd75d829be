// What a template may spend, and the error that stops it.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

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
};

class Budget {
 public:
  explicit Budget(const Limits& limits)
      : steps_left_(limits.max_steps), memory_left_(limits.max_memory) {}

  void work(size_t steps = 1) {
    if (steps > steps_left_) throw Error{"template takes too many steps", 0, true};
    steps_left_ -= steps;
  }
  // Reading or writing `bytes` of text.
  void scan(size_t bytes) { work(1 + bytes / 64); }
  // Call before the memory is taken.
  void memory(size_t bytes) {
    if (bytes > memory_left_) throw Error{"template uses too much memory", 0, true};
    memory_left_ -= bytes;
    scan(bytes);
  }

 private:
  size_t steps_left_;
  size_t memory_left_;
};

}  // namespace nereid::text::jinja
