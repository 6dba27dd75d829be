// Whether the calling thread may execute quick requests: one that brings a request that says so, or
// a response of a backend that lends its threads; never one that executes a backend's code already.
#pragma once

#include <utility>

namespace nereid::server {

// Holds for its scope.
class RunHere {
 public:
  // Changes nothing unless `allowed`.
  explicit RunHere(bool allowed) : before_(mode_) {
    if (allowed && mode_ == Mode::kNo) mode_ = Mode::kYes;
  }
  // The thread executes a backend's code.
  static RunHere never() { return RunHere(Mode::kNever); }
  ~RunHere() { mode_ = before_; }
  RunHere(const RunHere&) = delete;
  RunHere& operator=(const RunHere&) = delete;

  static bool allowed() { return mode_ == Mode::kYes; }

 private:
  enum class Mode { kNo, kYes, kNever };
  explicit RunHere(Mode mode) : before_(std::exchange(mode_, mode)) {}

  static inline thread_local Mode mode_ = Mode::kNo;
  const Mode before_;
};

}  // namespace nereid::server
