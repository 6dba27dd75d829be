// Permission of the calling thread to execute quick requests on itself. A front end grants it for a
// request flagged kMayRunHere, a backend for its responses (NEREID_LendsThread). A thread inside a
// backend's code has no permission, so executions do not nest.
#pragma once

#include <utility>

namespace nereid::server {

// Sets the permission for a scope.
class InlineExecution {
 public:
  // Grants the permission if `allowed` and the thread is not inside a backend's code.
  explicit InlineExecution(bool allowed) : before_(mode_) {
    if (allowed && mode_ == Mode::kNo) mode_ = Mode::kYes;
  }
  // Denies the permission while the thread executes a backend's code.
  static InlineExecution never() { return InlineExecution(Mode::kNever); }
  ~InlineExecution() { mode_ = before_; }
  InlineExecution(const InlineExecution&) = delete;
  InlineExecution& operator=(const InlineExecution&) = delete;

  static bool allowed() { return mode_ == Mode::kYes; }

 private:
  enum class Mode { kNo, kYes, kNever };
  explicit InlineExecution(Mode mode) : before_(std::exchange(mode_, mode)) {}

  static inline thread_local Mode mode_ = Mode::kNo;
  const Mode before_;
};

}  // namespace nereid::server
