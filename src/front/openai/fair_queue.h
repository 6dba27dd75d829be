// Fair queueing between API keys: when requests exceed the model's capacity, the key with
// the fewest charged tokens is next, so that one key's hundred requests do not delay
// another's only one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "front/http/message.h"

namespace nereid::front {

// The queue of one model.
class FairQueue : public std::enable_shared_from_this<FairQueue> {
 public:
  // Most waiting requests; beyond, enter() refuses.
  explicit FairQueue(size_t most_waiting = 8192) : most_waiting_(most_waiting) {}

  // Charges the exchange's permit for `num_prompt_tokens` and calls `start`: at once while fewer
  // than `limit` requests with permits run and none waits, else on the exchange's strand when it is
  // next; never for a client that has left. Requests without a permit start at once, as all do with
  // a `limit` of 0. On the strand. False: too many wait; `start` is not called.
  [[nodiscard]] bool enter(const ExchangePtr& exchange, size_t limit, int64_t num_prompt_tokens,
                           std::function<void()> start);

 private:
  struct Waiting {
    ExchangePtr exchange;
    int64_t num_prompt_tokens = 0;
    std::function<void()> start;
  };
  // A key with waiting requests. Its tokens count from the queue's position at its arrival, so that
  // an idle key gains no advance.
  struct Line {
    std::shared_ptr<KeyUse> use;
    int64_t behind = 0;
    std::deque<Waiting> waiting;

    int64_t turn() const { return behind + use->num_charged(); }
  };
  void leave();
  Waiting take_next();

  const size_t most_waiting_;
  std::mutex mutex_;
  size_t limit_ = 0, num_running_ = 0, num_waiting_ = 0;
  int64_t turn_ = 0;         // position of the last request taken
  std::vector<Line> lines_;  // without empty ones, in order of arrival
};

// A queue for each model, so that a busy model does not delay requests to others. Any thread.
class FairQueues {
 public:
  // The queue of the model of that name; a new one when it has no requests.
  std::shared_ptr<FairQueue> of(std::string_view model);
  // Number of queues.
  size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::weak_ptr<FairQueue>, std::less<>> queues_;
};

}  // namespace nereid::front
