// See request_queue.h.
#include "server/request_queue.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/clock.h"

namespace nereid::server {
namespace {

constexpr uint64_t kMaxLevels = 1 << 16;
constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

uint64_t size_of(const InferenceRequest& request) {
  return static_cast<uint64_t>(std::max<int64_t>(1, request.batch_size));
}

bool same_bytes(const InputTensor& a, const InputTensor& b) {
  const auto joined = [](const InputTensor& t) {
    std::string out;
    for (const auto& buffer : t.buffers) {
      if (buffer.memory_type == TRITONSERVER_MEMORY_GPU) return std::string();
      out.append(static_cast<const char*>(buffer.base), buffer.byte_size);
    }
    return out;
  };
  return joined(a) == joined(b);
}

void wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                uint64_t wake_ns) {
  if (wake_ns == kNever) {
    changed.wait(lock);
  } else {
    changed.wait_until(lock, Time(std::chrono::nanoseconds(wake_ns)));
  }
}

}  // namespace

RequestQueue::RequestQueue(const ModelConfig& config, Drop drop)
    : config_(config), drop_(std::move(drop)) {
  const DynamicBatching batching = config.batching.value_or(DynamicBatching());
  const uint64_t num_levels = std::clamp<uint64_t>(batching.priority_levels, 1, kMaxLevels);
  bool has_timeouts = false;
  for (uint64_t i = 1; i <= num_levels; ++i) {
    const auto own = batching.level_queues.find(i);
    Level& level = levels_.emplace_back();
    level.policy = own == batching.level_queues.end() ? batching.queue : own->second;
    has_timeouts = has_timeouts || level.policy.timeout_us > 0;
  }
  if (has_timeouts) expirer_ = std::thread([this] { expire(); });
}

RequestQueue::~RequestQueue() {
  close();
  if (expirer_.joinable()) expirer_.join();
}

RequestQueue::Level& RequestQueue::level_of(const InferenceRequest& request) {
  const uint64_t asked = request.priority;
  if (asked >= 1 && asked <= levels_.size()) return levels_[asked - 1];
  const uint64_t standard = config_.batching ? config_.batching->default_priority : 0;
  return levels_[standard >= 1 && standard <= levels_.size() ? standard - 1 : 0];
}

Status RequestQueue::push(InferenceRequest* request) {
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
    level.waiting.push_back({request, expires ? request->start_ns + timeout_us * 1000 : 0});
  }
  changed_.notify_all();
  return ok();
}

void RequestQueue::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

void RequestQueue::sweep(uint64_t now, std::vector<Dropped>& dropped) {
  for (Level& level : levels_) {
    const auto take_cancelled = [&](const Waiting& w) {
      if (!w.request->context()->is_cancelled()) return false;
      dropped.push_back({w.request, cancelled("request cancelled while it was queued")});
      return true;
    };
    std::erase_if(level.waiting, take_cancelled);
    std::erase_if(level.delayed, take_cancelled);
    std::erase_if(level.waiting, [&](const Waiting& w) {
      if (w.deadline_ns == 0 || now < w.deadline_ns) return false;
      if (level.policy.delay_on_timeout) {
        level.delayed.push_back({w.request, 0});
      } else {
        dropped.push_back({w.request, unavailable("Request timeout expired")});
      }
      return true;
    });
  }
}

void RequestQueue::drop_all(Lock& lock, std::vector<Dropped>& dropped) {
  if (dropped.empty()) return;
  lock.unlock();
  for (const auto& d : dropped) drop_(d.request, d.status);
  dropped.clear();
  lock.lock();
}

uint64_t RequestQueue::next_deadline() const {
  uint64_t next = kNever;
  for (const Level& level : levels_) {
    for (const Waiting& w : level.waiting) {
      if (w.deadline_ns > 0) next = std::min(next, w.deadline_ns);
    }
  }
  return next;
}

std::vector<InferenceRequest*> RequestQueue::take() {
  std::vector<Dropped> dropped;
  Lock lock(mutex_);
  while (true) {
    const uint64_t now = now_ns();
    sweep(now, dropped);
    if (!dropped.empty()) {
      drop_all(lock, dropped);
      continue;
    }
    uint64_t wake_ns = kNever;
    auto batch = form_batch(now, wake_ns);
    if (!batch.empty()) return batch;
    if (closed_ && wake_ns == kNever) return {};
    wait_until(changed_, lock, std::min(wake_ns, next_deadline()));
  }
}

bool RequestQueue::fits(const InferenceRequest& first, const InferenceRequest& next) const {
  if (first.inputs.size() != next.inputs.size()) return false;
  for (const auto& input : first.inputs) {
    const auto other = std::find_if(next.inputs.begin(), next.inputs.end(),
                                    [&](const auto& t) { return t.name == input.name; });
    if (other == next.inputs.end()) return false;
    const TensorSpec* spec = config_.input(input.name);
    if (spec == nullptr || spec->allow_ragged) continue;
    if (spec->is_shape_tensor) {
      if (input.shape != other->shape || !same_bytes(input, *other)) return false;
      continue;
    }
    // The first dimension is the batch.
    if (input.shape.size() != other->shape.size() ||
        !std::equal(input.shape.begin() + 1, input.shape.end(), other->shape.begin() + 1)) {
      return false;
    }
  }
  return true;
}

std::vector<InferenceRequest*> RequestQueue::form_batch(uint64_t now, uint64_t& wake_ns) {
  std::vector<const Waiting*> order;
  const uint64_t max_size = static_cast<uint64_t>(std::max<int64_t>(1, config_.max_batch_size));
  // Higher levels first; inside one, late requests after the others. No batch is longer than this.
  for (const Level& level : levels_) {
    for (const auto* list : {&level.waiting, &level.delayed}) {
      for (const Waiting& w : *list) {
        if (order.size() > max_size) break;
        order.push_back(&w);
      }
    }
  }
  if (order.empty()) return {};
  if (!config_.batching || config_.max_batch_size < 1) return remove_first(1);
  const DynamicBatching& batching = *config_.batching;
  uint64_t limit = 0;
  for (int32_t size : batching.preferred_sizes) {
    limit = std::max(limit, static_cast<uint64_t>(size));
  }
  if (limit == 0) limit = max_size;
  uint64_t total = 0, oldest_ns = kNever;
  size_t count = 0, preferred_count = 0;
  bool cannot_grow = false;
  for (const Waiting* w : order) {
    const uint64_t size = size_of(*w->request);
    if (count > 0 && (total + size > max_size || total + size > std::max(limit, total) ||
                      !fits(*order[0]->request, *w->request))) {
      cannot_grow = true;
      break;
    }
    total += size;
    ++count;
    oldest_ns = std::min(oldest_ns, w->request->start_ns);
    const auto is_total = [&](int32_t s) { return static_cast<uint64_t>(s) == total; };
    if (std::any_of(batching.preferred_sizes.begin(), batching.preferred_sizes.end(), is_total)) {
      preferred_count = count;
    }
  }
  const uint64_t due_ns = oldest_ns + batching.max_delay_us * 1000;
  const bool is_due = closed_ || batching.max_delay_us == 0 || now >= due_ns;
  if (preferred_count > 0 && !is_due) return remove_first(preferred_count);
  if (cannot_grow || is_due || total >= limit) return remove_first(count);
  wake_ns = due_ns;
  return {};
}

std::vector<InferenceRequest*> RequestQueue::remove_first(size_t count) {
  std::vector<InferenceRequest*> out;
  for (Level& level : levels_) {
    for (auto* list : {&level.waiting, &level.delayed}) {
      while (out.size() < count && !list->empty()) {
        out.push_back(list->front().request);
        list->pop_front();
      }
    }
  }
  return out;
}

void RequestQueue::expire() {
  std::vector<Dropped> dropped;
  Lock lock(mutex_);
  while (!closed_) {
    sweep(now_ns(), dropped);
    drop_all(lock, dropped);
    if (closed_) break;
    wait_until(changed_, lock, next_deadline());
  }
}

}  // namespace nereid::server
