#include "front/http/workers.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/contained.h"

namespace nereid::front {
namespace {

// Niceness of workers above the event loops': a loop that wakes up runs within milliseconds, and
// workers keep a third of the processor time of a thread of normal niceness.
constexpr int kNicer = 5;

// On Linux niceness is per thread.
void let_others_run_first() {
  const auto thread = static_cast<id_t>(::gettid());
  const int niceness = getpriority(PRIO_PROCESS, thread);
  static_cast<void>(setpriority(PRIO_PROCESS, thread, niceness + kNicer));
}

// Whether the work on this thread of kFetch counts as one of kLong.
thread_local bool counts_as_long = false;

}  // namespace

Workers::Workers(int num_threads) : most_long_(std::max(num_threads - 1, 1)) {
  try {
    for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {  // no more threads: the started ones must end first
    close();
    throw;
  }
}

Workers::~Workers() { close(); }

void Workers::close() {
  {
    std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  ready_.notify_all();
  fetch_ready_.notify_all();
  for (auto& thread : fetch_threads_) thread.join();
  for (auto& thread : threads_) thread.join();
}

void Workers::push(Job job, Lane lane, uint64_t tenant) {
  if (lane == Lane::kFetch) return push_fetch(std::move(job), tenant);
  {
    std::lock_guard lock(mutex_);
    if (is_closed_) return;
    (lane == Lane::kLong ? long_jobs_ : jobs_).push_back(std::move(job));
  }
  ready_.notify_one();
}

void Workers::work() {
  let_others_run_first();
  bool is_long = false;
  while (auto job = take(is_long)) {
    contained("while working for a request", *job);  // its exchange reports it, too
    job.reset();
    if (is_long) finish_long();
  }
}

std::optional<Workers::Job> Workers::take(bool& is_long) {
  std::unique_lock lock(mutex_);
  const auto may_take_long = [this] { return !long_jobs_.empty() && num_long_ < most_long_; };
  ready_.wait(lock, [&] {
    return !jobs_.empty() || may_take_long() || (is_closed_ && long_jobs_.empty());
  });
  is_long = may_take_long() && (jobs_.empty() || is_long_turn_);
  std::deque<Job>& from = is_long ? long_jobs_ : jobs_;
  if (from.empty()) return std::nullopt;
  is_long_turn_ = !is_long;
  num_long_ += is_long;
  Job job = std::move(from.front());
  from.pop_front();
  return job;
}

void Workers::finish_long() {
  {
    std::lock_guard lock(mutex_);
    --num_long_;
  }
  ready_.notify_all();
  long_ended_.notify_one();
}

void Workers::count_as_long() {
  if (std::exchange(counts_as_long, true)) return;
  std::unique_lock lock(mutex_);
  long_ended_.wait(lock, [this] { return num_long_ < most_long_; });
  ++num_long_;
}

void Workers::push_fetch(Job job, uint64_t tenant) {
  std::lock_guard lock(mutex_);
  if (is_closed_) return;
  fetches_[tenant].waiting.push_back(std::move(job));
  ++num_waiting_;
  if (num_waiting_ > num_idle_ && fetch_threads_.size() < kMostFetches) {
    try {
      fetch_threads_.emplace_back([this] { fetch(); });
      ++num_idle_;
    } catch (const std::system_error&) {  // the running threads take the job
      if (fetch_threads_.empty()) throw;
    }
  }
  fetch_ready_.notify_one();
}

void Workers::fetch() {
  let_others_run_first();
  uint64_t tenant = 0;
  while (auto job = take_fetch(tenant)) {
    contained("while working for a request", *job);
    job.reset();
    if (std::exchange(counts_as_long, false)) finish_long();
    std::lock_guard lock(mutex_);
    ++num_idle_;
    const auto own = fetches_.find(tenant);
    --own->second.num_running;
    if (own->second.num_running == 0 && own->second.waiting.empty()) fetches_.erase(own);
    fetch_ready_.notify_all();
  }
}

std::optional<Workers::Job> Workers::take_fetch(uint64_t& tenant) {
  std::unique_lock lock(mutex_);
  const auto may_run = [](const auto& of) {
    return !of.second.waiting.empty() && of.second.num_running < kTenantFetches;
  };
  auto next = fetches_.end();
  fetch_ready_.wait(lock, [&] {
    const auto behind = fetches_.upper_bound(last_tenant_);
    next = std::find_if(behind, fetches_.end(), may_run);
    if (next == fetches_.end()) {
      next = std::find_if(fetches_.begin(), behind, may_run);
      if (next == behind) next = fetches_.end();
    }
    return next != fetches_.end() || (is_closed_ && num_waiting_ == 0);
  });
  if (next == fetches_.end()) return std::nullopt;
  tenant = last_tenant_ = next->first;
  Job job = std::move(next->second.waiting.front());
  next->second.waiting.pop_front();
  ++next->second.num_running;
  --num_waiting_, --num_idle_;
  return job;
}

}  // namespace nereid::front
