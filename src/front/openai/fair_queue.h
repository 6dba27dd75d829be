// Who goes next when more requests of API keys are there than a model computes at once: the key
// that has been given the fewest tokens, so that one key's hundred requests do not stand in front
// of another's only one.
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

// The line in front of one model.
class FairQueue : public std::enable_shared_from_this<FairQueue> {
 public:
  // `most_waiting` requests at once; beyond them enter() refuses.
  explicit FairQueue(size_t most_waiting = 8192) : most_waiting_(most_waiting) {}

  // Charges the exchange's permit for `num_prompt_tokens` and calls `start`: at once while fewer
  // than `limit` requests with permits run and none waits, else on the exchange's strand when its
  // turn comes; never for a client that has left. Requests without a permit start at once, and so
  // does everything with a `limit` of 0. On the strand. False: too many wait, and nothing happens.
  [[nodiscard]] bool enter(const ExchangePtr& exchange, size_t limit, int64_t num_prompt_tokens,
                           std::function<void()> start);

 private:
  struct Waiting {
    ExchangePtr exchange;
    int64_t num_prompt_tokens = 0;
    std::function<void()> start;
  };
  // A key since requests of it waited, while those of any key wait. Its tokens count from where the
  // queue stood when it came, so that no key saves up turns.
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
  int64_t turn_ = 0;         // of the last one that was taken
  std::vector<Line> lines_;  // those whose requests came first are first, of those that wait
};

// A line for each model, so that a busy one holds up nobody who asks another. Any thread.
class FairQueues {
 public:
  // The line of the model of that name; a new one when no request of its is on its way.
  std::shared_ptr<FairQueue> of(std::string_view model);
  // Lines that are kept.
  size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::weak_ptr<FairQueue>, std::less<>> queues_;
};

}  // namespace nereid::front
