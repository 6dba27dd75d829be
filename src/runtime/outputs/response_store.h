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

// Thread-safe. Has only ids whose final response was not taken: any other id has ended or has a
// callback, so memory does not grow with the number of ids.
class ResponseStore {
 public:
  // Registers `id`, before its first put().
  void expect(RequestId id);
  void put(Response response);

  // No more expect(): await() for any id returns when nothing is left to come.
  void close();

  // See Executor::await_responses().
  std::vector<Response> await(Timeout timeout);
  std::vector<Response> await(RequestId id, Timeout timeout);
  std::vector<std::vector<Response>> await(const std::vector<RequestId>& ids, Timeout timeout);

  int64_t num_ready(std::optional<RequestId> id) const;

 private:
  using Deadline = std::optional<Time>;  // no value: wait for ever

  static Deadline deadline(Timeout timeout);
  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, const Deadline& until, Ready ready);
  std::vector<Response> await_until(RequestId id, const Deadline& until);
  std::vector<Response> take(RequestId id);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  absl::flat_hash_map<RequestId, std::vector<Response>> open_;  // final response not taken
  std::set<RequestId> ready_;                                   // ids with responses
  int64_t num_ready_ = 0;                                       // responses
  bool closed_ = false;
};

// An executor whose requests without a callback have their responses in a store.
class StoringExecutor : public Executor {
 public:
  std::vector<Response> await_responses(Timeout timeout) final { return store_.await(timeout); }
  std::vector<Response> await_responses(RequestId id, Timeout timeout) final {
    return store_.await(id, timeout);
  }
  std::vector<std::vector<Response>> await_responses(const std::vector<RequestId>& ids,
                                                     Timeout timeout) final {
    return store_.await(ids, timeout);
  }
  int64_t num_responses_ready(std::optional<RequestId> id) const final {
    return store_.num_ready(id);
  }

 protected:
  ResponseStore store_;
};

}  // namespace nereid::runtime
