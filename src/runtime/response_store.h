// Responses of requests without a callback, until they are awaited.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "nereid/executor.h"

namespace nereid::runtime {

// For any thread. Remembers only requests whose final response was not taken yet: every other id
// that was given out has ended or has a callback, so that memory does not grow with the ids.
class ResponseStore {
 public:
  // `id` will be answered here; before its first put().
  void expect(RequestId id);
  void put(Response response);

  // No expect() follows: those who wait for anything at all return when nothing is left to come.
  void close();

  // See Executor::await_responses().
  std::vector<Response> await(Timeout timeout);
  std::vector<Response> await(RequestId id, Timeout timeout);
  std::vector<std::vector<Response>> await(const std::vector<RequestId>& ids, Timeout timeout);

  int64_t num_ready(std::optional<RequestId> id) const;

 private:
  using Deadline = std::optional<Time>;  // none: wait for ever

  static Deadline deadline(Timeout timeout);
  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, const Deadline& until, Ready ready);
  std::vector<Response> await_until(RequestId id, const Deadline& until);
  std::vector<Response> take(RequestId id);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  absl::flat_hash_map<RequestId, std::vector<Response>> open_;  // final response not taken
  std::set<RequestId> ready_;                                   // those with responses
  int64_t num_ready_ = 0;                                       // responses
  bool closed_ = false;
};

}  // namespace nereid::runtime
