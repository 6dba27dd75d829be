#include "front/openai/fair_queue.h"

#include <algorithm>
#include <utility>

namespace nereid::front {

bool FairQueue::enter(const ExchangePtr& exchange, size_t limit, int64_t num_prompt_tokens,
                      std::function<void()> start) {
  const KeyUse::PermitPtr permit = exchange->request().permit;
  if (permit == nullptr) {
    start();
    return true;
  }
  if (limit > 0) {
    std::lock_guard lock(mutex_);
    limit_ = limit;
    if (num_running_ >= limit || num_waiting_ > 0) {
      if (num_waiting_ >= most_waiting_) return false;
      const std::shared_ptr<KeyUse> use = permit->use().shared_from_this();
      auto line = std::ranges::find(lines_, use, &Line::use);
      if (line == lines_.end())
        line = lines_.insert(line, {.use = use, .behind = turn_ - use->num_charged()});
      if (line->waiting.empty()) {  // a tenant that had a turn keeps its place behind it
        line->behind = std::max(line->behind, turn_ - use->num_charged());
        std::rotate(line, line + 1, lines_.end());
        line = lines_.end() - 1;
      }
      line->waiting.push_back({exchange, num_prompt_tokens, std::move(start)});
      ++num_waiting_;
      return true;
    }
    ++num_running_;
  }
  if (limit > 0) permit->on_end([self = shared_from_this()] { self->leave(); });
  permit->charge(num_prompt_tokens);
  start();
  return true;
}

// Needs the mutex. Takes the first that arrived among equal keys.
FairQueue::Waiting FairQueue::take_next() {
  const auto next = std::ranges::min_element(
      lines_, {}, [](const Line& line) { return std::pair(line.waiting.empty(), line.turn()); });
  turn_ = std::max(turn_, next->turn());
  Waiting out = std::move(next->waiting.front());
  next->waiting.pop_front();
  --num_waiting_;
  // Charged before the next choice.
  out.exchange->request().permit->charge(out.num_prompt_tokens);
  if (num_waiting_ == 0) lines_.clear();
  return out;
}

void FairQueue::leave() {
  std::vector<Waiting> started;
  {
    std::lock_guard lock(mutex_);
    --num_running_;
    while (num_running_ < limit_ && num_waiting_ > 0) {
      started.push_back(take_next());
      ++num_running_;
    }
  }
  for (Waiting& next : started) {
    const ExchangePtr exchange = next.exchange;
    exchange->post([self = shared_from_this(), exchange, start = std::move(next.start)] {
      if (exchange->disconnected()) return self->leave();
      exchange->request().permit->on_end([self] { self->leave(); });
      start();
    });
  }
}

std::shared_ptr<FairQueue> FairQueues::of(std::string_view model) {
  std::lock_guard lock(mutex_);
  if (const auto found = queues_.find(model); found != queues_.end())
    if (auto queue = found->second.lock()) return queue;
  std::erase_if(queues_, [](const auto& entry) { return entry.second.expired(); });
  auto queue = std::make_shared<FairQueue>();
  queues_[std::string(model)] = queue;
  return queue;
}

size_t FairQueues::size() const {
  std::lock_guard lock(mutex_);
  return queues_.size();
}

}  // namespace nereid::front
