#include "front/http/workers.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

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
  for (auto& thread : threads_) thread.join();
}

void Workers::push(Job job, Lane lane) {
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
}

}  // namespace nereid::front
