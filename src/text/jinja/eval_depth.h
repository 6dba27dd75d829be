// The bound on the evaluator's recursion.
#pragma once

#include "text/jinja/evaluator.h"

namespace nereid::text::jinja {

// Counts one level of recursion during its life.
class Evaluator::Depth {
 public:
  explicit Depth(Evaluator& evaluator) : evaluator_(evaluator) {
    if (evaluator_.depth_ >= kMaxDepth) throw Error{"template recursion is too deep", 0, true};
    ++evaluator_.depth_;
  }
  ~Depth() { --evaluator_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  // With the frames between two levels, far below a thread's 8 MiB of stack.
  static constexpr int kMaxDepth = 600;
  Evaluator& evaluator_;
};

// Makes `scope` current during its life.
class Evaluator::ScopeSwitch {
 public:
  ScopeSwitch(Evaluator& evaluator, ScopePtr scope)
      : evaluator_(evaluator), outer_(std::exchange(evaluator.scope_, std::move(scope))) {}
  ~ScopeSwitch() { evaluator_.scope_ = std::move(outer_); }
  ScopeSwitch(const ScopeSwitch&) = delete;
  ScopeSwitch& operator=(const ScopeSwitch&) = delete;

 private:
  Evaluator& evaluator_;
  ScopePtr outer_;
};

}  // namespace nereid::text::jinja
