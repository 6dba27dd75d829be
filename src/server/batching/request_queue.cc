#include "server/batching/request_queue.h"

#include <algorithm>

#include "base/clock.h"

namespace nereid::server {
namespace {

constexpr uint64_t kMaxLevels = 1 << 16;

}  // namespace

RequestQueue::RequestQueue(const ModelConfig& config, const BatchStrategy* strategy, Drop drop)
    : Batcher(std::move(drop)), config_(config) {
  const DynamicBatching batching = config.batching.value_or(DynamicBatching());
  rule_ = {batching.preferred_sizes, batching.max_delay_us, strategy};
  const uint64_t num_levels = std::clamp<uint64_t>(batching.priority_levels, 1, kMaxLevels);
  for (uint64_t i = 1; i <= num_levels; ++i) {
    const auto own = batching.level_queues.find(i);
    levels_.emplace_back().policy =
        own == batching.level_queues.end() ? batching.queue : own->second;
  }
  start();
}

RequestQueue::Level& RequestQueue::level_of(const InferenceRequest& request) {
  const uint64_t asked = request.priority;
  if (asked >= 1 && asked <= levels_.size()) return levels_[asked - 1];
  const uint64_t standard = config_.batching ? config_.batching->default_priority : 0;
  return levels_[standard >= 1 && standard <= levels_.size() ? standard - 1 : 0];
}

Status RequestQueue::push(InferenceRequest* request) {
  watch(*request);
  {
    std::lock_guard lock(mutex_);
    if (closed_) return unavailable("model '{}' is unloading", config_.name);
    Level& level = level_of(*request);
    const QueuePolicy& policy = level.policy;
    if (policy.max_queue_size > 0 &&
        level.waiting.size() + level.delayed.size() >= policy.max_queue_size) {
      return unavailable("{}Exceeds maximum queue size", request->log_id());
    }
    uint64_t timeout_us = policy.timeout_us;
    if (policy.allow_timeout_override && request->timeout_us > 0) {
      timeout_us = std::min(timeout_us, request->timeout_us);
    }
    const bool expires = timeout_us > 0 && timeout_us < kNever / 4000;
    const uint64_t deadline_ns = expires ? request->start_ns + timeout_us * 1000 : 0;
    level.waiting.push_back({request, deadline_ns});
    if (expires) wake_at(deadline_ns);
    watched(*request);
  }
  changed_for_one();
  return ok();
}

uint64_t RequestQueue::sweep(uint64_t now) {
  uint64_t next = kNever;
  for (Level& level : levels_) {
    const auto take_cancelled = [&](const Waiting& w) {
      if (!w.request->context()->is_cancelled()) return false;
      reject(w.request, cancelled("request cancelled while it was queued"));
      return true;
    };
    std::erase_if(level.waiting, take_cancelled);
    std::erase_if(level.delayed, take_cancelled);
    std::erase_if(level.waiting, [&](const Waiting& w) {
      if (w.deadline_ns == 0) return false;
      if (now < w.deadline_ns) {
        next = std::min(next, w.deadline_ns);
        return false;
      }
      if (level.policy.delay_on_timeout) {
        level.delayed.push_back({w.request, 0});
      } else {
        reject(w.request, unavailable("Request timeout expired"));
      }
      return true;
    });
  }
  return next;
}

bool RequestQueue::is_held() {
  if (!hold_.is_set()) return false;
  size_t num_waiting = 0;
  for (const Level& level : levels_) num_waiting += level.waiting.size() + level.delayed.size();
  if (!closed_ && hold_.holds(num_waiting)) return true;
  hold_.release();
  return false;
}

bool RequestQueue::plan(size_t, uint64_t now, uint64_t& wake_ns) {
  if (config_.batching && is_held()) return false;
  std::vector<const InferenceRequest*> order;
  const uint64_t max_size = static_cast<uint64_t>(std::max<int64_t>(1, config_.max_batch_size));
  // Higher priority levels first; within a level delayed requests last. At most a batch is taken.
  for (const Level& level : levels_) {
    for (const auto* list : {&level.waiting, &level.delayed}) {
      for (const Waiting& w : *list) {
        if (order.size() > max_size) break;
        order.push_back(w.request);
      }
    }
  }
  planned_ = std::min<size_t>(order.size(), 1);
  if (planned_ > 0 && config_.batching && config_.max_batch_size > 0) {
    planned_ = size_of_batch(config_, rule_, order, now, closed_, wake_ns);
  }
  return planned_ > 0;
}

std::vector<InferenceRequest*> RequestQueue::take_planned(size_t) {
  std::vector<InferenceRequest*> out;
  for (Level& level : levels_) {
    for (auto* list : {&level.waiting, &level.delayed}) {
      while (out.size() < planned_ && !list->empty()) {
        out.push_back(list->front().request);
        list->pop_front();
      }
    }
  }
  return out;
}

}  // namespace nereid::server
