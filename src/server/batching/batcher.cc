#include "server/batching/batcher.h"

#include <algorithm>

#include "base/clock.h"
#include "base/contained.h"

namespace nereid::server {
namespace {

void wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                uint64_t wake_ns) {
  if (wake_ns == std::numeric_limits<uint64_t>::max()) {
    changed.wait(lock);
  } else {
    changed.wait_until(lock, Time(std::chrono::nanoseconds(wake_ns)));
  }
}

}  // namespace

Batcher::Batcher(Drop drop) : drop_(std::move(drop)) { cancel_target_->batcher = this; }

void Batcher::start() {
  timer_ = std::thread([this] { run_contained("a batcher's timer", [this] { run_timer(); }); });
}

void Batcher::shut() {
  close();
  {
    std::lock_guard lock(cancel_target_->mutex);
    cancel_target_->batcher = nullptr;
  }
  if (timer_.joinable()) timer_.join();
}

void Batcher::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    on_close();
  }
  changed_.notify_all();
  timer_wakes_.notify_all();
}

void Batcher::watch(const InferenceRequest& request) {
  request.context()->cancel_state().on_cancel([bell = cancel_target_] {
    std::lock_guard lock(bell->mutex);
    if (bell->batcher != nullptr) bell->batcher->ring();
  });
}

void Batcher::watched(const InferenceRequest& request) {
  if (!request.context()->is_cancelled()) return;
  has_cancelled_.store(true);
  timer_wakes_.notify_all();
}

void Batcher::ring() {
  // The lock orders this flag with the timer's check before it sleeps.
  std::lock_guard lock(mutex_);
  has_cancelled_.store(true);
  timer_wakes_.notify_all();
}

void Batcher::wake_at(uint64_t at_ns) {
  if (at_ns >= due_ns_) return;
  due_ns_ = at_ns;
  timer_wakes_.notify_all();
}

bool Batcher::sweep_if_due(Lock& lock, uint64_t now) {
  if (!has_cancelled_.exchange(false) && now < due_ns_) return false;
  due_ns_ = sweep(now);
  if (rejected_.empty()) return false;
  std::vector<std::pair<InferenceRequest*, Status>> rejected;
  rejected.swap(rejected_);
  lock.unlock();
  for (const auto& [request, status] : rejected) drop_(request, status);
  lock.lock();
  return true;
}

void Batcher::run_timer() {
  Lock lock(mutex_);
  while (!closed_) {
    if (sweep_if_due(lock, now_ns())) continue;
    wait_until(timer_wakes_, lock, due_ns_);
  }
}

void Batcher::let_go(size_t instance) {
  const Lock lock(mutex_);
  let_go_.insert(instance);
  changed();
}

std::vector<InferenceRequest*> Batcher::take(size_t instance, Gate* gate) {
  bool has_turn = false;
  Lock lock(mutex_);
  while (true) {
    if (let_go_.contains(instance)) {
      changed_for_one();  // the wake-up may have been meant for a request
      lock.unlock();
      if (gate != nullptr && gate->is_inside()) gate->leave();
      return {};
    }
    const uint64_t now = now_ns();
    if (sweep_if_due(lock, now)) continue;
    uint64_t wake_ns = kNever;
    const bool is_due = plan(instance, now, wake_ns);
    if (is_due && (gate == nullptr || has_turn)) return take_planned(instance);
    if (is_due || (gate != nullptr && gate->is_inside())) {
      // After the wait for the gate the planned batch may be gone or have grown.
      lock.unlock();
      if (is_due) gate->enter();
      if (!is_due) gate->leave();
      has_turn = is_due;
      lock.lock();
      continue;
    }
    if (closed_ && wake_ns == kNever) return {};
    wait_until(changed_, lock, std::min(wake_ns, due_ns_));
  }
}

}  // namespace nereid::server
