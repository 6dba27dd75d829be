// Keeps a number of random requests running on an executor and checks every response.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "base/clock.h"
#include "nereid/executor.h"
#include "requests.h"

namespace nereid::soak {

struct Counts {
  int64_t sent = 0, done = 0;
  int64_t cancelled = 0, timed_out = 0, compared = 0;  // of done
  int64_t tokens = 0;  // generated, of all sequences and beams that were returned
};

// All calls but those of the executor's callbacks come from one thread. Destroy it only when
// drained or after the executor.
class Traffic {
 public:
  // Runs `num_references` repeatable requests alone, to compare with when they come again later.
  Traffic(Executor& executor, RequestMaker& maker, int num_references);

  // Sends RequestMaker::peaks(count), burst by burst. False: one of them got no final response.
  bool warm_up(int count);

  // Keeps `num_clients` requests running until `end`.
  void run(Time end, int num_clients);

  // Waits for the final responses of all that was sent.
  bool drain(std::chrono::seconds timeout);

  Counts counts() const;
  std::vector<std::string> complaints() const;  // promises that were not kept, the first few

 private:
  struct Pending {
    Request request;
    bool replaces = false;                                  // each response holds everything so far
    std::optional<size_t> reference;                        // index into references_
    std::vector<std::vector<std::vector<TokenId>>> tokens;  // [sequence][beam]
    std::vector<FinishReason> reasons;                      // of each sequence's best
    bool ended_early = false;                               // cancelled or timed out
    bool done = false;
  };
  struct Reference {
    Request request;
    std::vector<std::vector<std::vector<TokenId>>> tokens;
    std::vector<FinishReason> reasons;
  };
  struct Cancellation {
    Time time;
    RequestId id;
    bool operator>(const Cancellation& o) const { return time > o.time; }
  };

  void send(Order order, std::optional<size_t> reference);
  void cancel_those_due();
  void take(Pending& pending, Response response);
  void check_shape(const Pending& pending, const Response& response);
  void finish(Pending& pending);
  void complain(const Pending& pending, std::string what);

  Executor& executor_;
  RequestMaker& maker_;
  std::vector<Reference> references_;
  std::priority_queue<Cancellation, std::vector<Cancellation>, std::greater<>> cancellations_;

  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  Counts counts_;
  std::vector<std::string> complaints_;
};

}  // namespace nereid::soak
