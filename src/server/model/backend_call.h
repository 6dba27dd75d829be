// Calls of functions of backends. An exception of one would end the process: it becomes an error,
// and the requests of the execution are divided into released ones and the rest.
#pragma once

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "server/api/error.h"

namespace nereid::server {

// The error that `function` returned or threw.
template <class Function, class... Args>
Status call_backend(Function function, Args... args) {
  try {
    return take(function(args...));
  } catch (const std::exception& e) {
    return internal_error("the backend threw an exception: {}", e.what());
  } catch (...) {
    return internal_error("the backend threw an exception");
  }
}

// Records the requests that the calling thread releases while this lives: after an exception it is
// the only way to find those that the backend still had. (A backend that gives requests to threads
// of its own must not throw.)
class ReleasedHere {
 public:
  ReleasedHere() : before_(std::exchange(current_, this)) {}
  ~ReleasedHere() { current_ = before_; }
  ReleasedHere(const ReleasedHere&) = delete;
  ReleasedHere& operator=(const ReleasedHere&) = delete;

  static void note(const void* request) {
    if (current_ != nullptr) current_->released_.push_back(request);
  }
  bool has(const void* request) const {
    return std::find(released_.begin(), released_.end(), request) != released_.end();
  }

 private:
  static inline thread_local ReleasedHere* current_ = nullptr;
  ReleasedHere* const before_;
  absl::InlinedVector<const void*, 8> released_;
};

}  // namespace nereid::server
