// Fork-join pool: epoch-stamped chunk counter, spinning, sleeping.
#include "tensor/thread_pool.h"

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "tensor/spin.h"

namespace nereid {
namespace {

constexpr int kChunkBits = 24;
constexpr uint64_t kChunkMask = (uint64_t{1} << kChunkBits) - 1;

thread_local bool inside_region = false;

}  // namespace

ThreadPool::ThreadPool(int num_threads)
    : num_threads_(num_threads),
      busy_(std::make_unique<Busy[]>(static_cast<size_t>(std::max(num_threads, 1)))) {
  NEREID_CHECK(num_threads >= 1);
  spin_rounds_ = spin_rounds(num_threads);
  threads_.reserve(num_threads - 1);
  for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { worker(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(sleep_mutex_);
    stop_.store(true);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::vector<double> ThreadPool::busy_seconds() const {
  std::vector<double> seconds;
  for (int i = 0; i < num_threads_; ++i)
    seconds.push_back(1e-9 * static_cast<double>(busy_[static_cast<size_t>(i)].nanoseconds.load(
                                 std::memory_order_relaxed)));
  return seconds;
}

void ThreadPool::call(Body body, void* context, int64_t begin, int64_t end, int thread) {
  if (!counts_busy_.load(std::memory_order_relaxed)) return body(context, begin, end, thread);
  const Time start = now();
  body(context, begin, end, thread);
  const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(now() - start).count();
  busy_[static_cast<size_t>(thread)].nanoseconds.fetch_add(time, std::memory_order_relaxed);
}

void ThreadPool::run(int64_t items, int64_t grain, Body body, void* context) {
  NEREID_CHECK(!inside_region);
  std::lock_guard lock(caller_mutex_);
  const int64_t num_chunks = (items + grain - 1) / grain;
  inside_region = true;
  if (num_threads_ == 1 || num_chunks == 1) {
    for (int64_t begin = 0; begin < items; begin += grain) {
      call(body, context, begin, std::min(begin + grain, items), 0);
      num_serial_.store(num_serial_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    inside_region = false;
    return;
  }
  NEREID_CHECK(num_chunks <= static_cast<int64_t>(kChunkMask));
  body_.store(body, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  items_.store(items, std::memory_order_relaxed);
  grain_.store(grain, std::memory_order_relaxed);
  num_chunks_.store(num_chunks, std::memory_order_relaxed);
  num_done_.store(0, std::memory_order_relaxed);
  const uint64_t epoch = (state_.load(std::memory_order_relaxed) >> kChunkBits) + 1;
  const uint64_t state = epoch << kChunkBits | static_cast<uint64_t>(num_chunks);
  // Sequentially consistent with num_sleeping_: either this thread sees the sleeper, or the sleeper
  // sees the epoch.
  state_.store(state, std::memory_order_seq_cst);
  if (num_sleeping_.load(std::memory_order_seq_cst) > 0) {
    { std::lock_guard sleep_lock(sleep_mutex_); }
    wake_.notify_all();
  }
  const int64_t mine = take_chunks(state, 0);
  inside_region = false;
  num_done_.fetch_add(mine, std::memory_order_relaxed);
  wait_until_done(num_chunks);
}

// Spins (chunks usually end together), then sleeps: frees the processor for a preempted worker.
void ThreadPool::wait_until_done(int64_t num_chunks) {
  const auto done = [&] { return num_done_.load(std::memory_order_seq_cst) == num_chunks; };
  if (spin_until(spin_rounds_, done)) return;
  std::unique_lock lock(done_mutex_);
  // Sequentially consistent with num_done_: either the last worker sees the flag, or this thread
  // sees its count.
  caller_waits_.store(true, std::memory_order_seq_cst);
  done_.wait(lock, done);
  caller_waits_.store(false, std::memory_order_relaxed);
}

// Runs chunks of the region of `state` until none is left; returns their number.
int64_t ThreadPool::take_chunks(uint64_t state, int thread) {
  const uint64_t epoch = state >> kChunkBits;
  int64_t num_run = 0;
  while ((state >> kChunkBits) == epoch && (state & kChunkMask) != 0) {
    const Body body = body_.load(std::memory_order_relaxed);
    void* const context = context_.load(std::memory_order_relaxed);
    const int64_t items = items_.load(std::memory_order_relaxed);
    const int64_t grain = grain_.load(std::memory_order_relaxed);
    const int64_t num_chunks = num_chunks_.load(std::memory_order_relaxed);
    if (!state_.compare_exchange_weak(state, state - 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire))
      continue;
    const int64_t chunk = num_chunks - static_cast<int64_t>(state & kChunkMask);
    state -= 1;
    const int64_t begin = chunk * grain;
    call(body, context, begin, std::min(begin + grain, items), thread);
    ++num_run;
  }
  return num_run;
}

void ThreadPool::worker(int thread) {
  inside_region = true;
  uint64_t seen_epoch = 0;
  for (;;) {
    const uint64_t state = wait_for_job(seen_epoch);
    if (stop_.load(std::memory_order_relaxed)) return;
    seen_epoch = state >> kChunkBits;
    const int64_t num_run = take_chunks(state, thread);
    // Only a thread that took a chunk reports, while the caller is still in this region.
    if (num_run == 0) continue;
    num_done_.fetch_add(num_run, std::memory_order_seq_cst);
    if (caller_waits_.load(std::memory_order_seq_cst)) {
      { std::lock_guard lock(done_mutex_); }
      done_.notify_one();
    }
  }
}

// The state of a region newer than `seen_epoch`: spins, then sleeps. At stop: any state.
uint64_t ThreadPool::wait_for_job(uint64_t seen_epoch) {
  uint64_t state = 0;
  const auto is_next = [&] {
    state = state_.load(std::memory_order_acquire);
    return (state >> kChunkBits) != seen_epoch || stop_.load(std::memory_order_relaxed);
  };
  if (spin_until(spin_rounds_, is_next)) return state;
  std::unique_lock lock(sleep_mutex_);
  num_sleeping_.fetch_add(1, std::memory_order_seq_cst);
  wake_.wait(lock, [&] {
    state = state_.load(std::memory_order_seq_cst);
    return (state >> kChunkBits) != seen_epoch || stop_.load(std::memory_order_relaxed);
  });
  num_sleeping_.fetch_sub(1, std::memory_order_relaxed);
  return state;
}

}  // namespace nereid
