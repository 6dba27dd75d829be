// Whether the calling thread may execute models: the one that brings a request that says so, as
// long as it does not run a backend's code.
#pragma once

#include <utility>

namespace nereid::server {

class RunHere {
 public:
  explicit RunHere(bool allowed) : before_(std::exchange(allowed_, allowed)) {}
  ~RunHere() { allowed_ = before_; }
  RunHere(const RunHere&) = delete;
  RunHere& operator=(const RunHere&) = delete;

  static bool allowed() { return allowed_; }

 private:
  static inline thread_local bool allowed_ = false;
  const bool before_;
};

}  // namespace nereid::server
