// Fork-join pool of the CPU kernels: the caller is thread 0, the others spin briefly between
// regions and then sleep, so an idle process uses no processor time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace nereid {

class ThreadPool {
 public:
  // `num_threads` >= 1 counts the caller; num_threads - 1 threads are started.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }
  // Changes with each chunk that a thread takes. Any thread.
  uint64_t progress() const {
    return state_.load(std::memory_order_relaxed) + num_serial_.load(std::memory_order_relaxed);
  }

  // Calls fn(begin, end, thread) for disjoint ranges that cover [0, items); returns when all are
  // done. Every range starts at a multiple of `grain` and is at most `grain` long, so the cut does
  // not depend on the number of threads or on timing; which thread runs a range does. `thread` is
  // in [0, num_threads()) and no two ranges run with the same `thread` at a time. A thread that
  // the system has suspended before it took a range is not waited for. Safe to call from several
  // threads (they take turns); not from inside fn. fn must not throw.
  template <class F>
  void parallel_for(int64_t items, int64_t grain, F&& fn) {
    if (items <= 0) return;
    if (grain < 1) grain = 1;
    using Fn = std::remove_reference_t<F>;
    const Body body = [](void* context, int64_t begin, int64_t end, int thread) {
      (*static_cast<Fn*>(context))(begin, end, thread);
    };
    run(items, grain, body, const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using Body = void (*)(void* context, int64_t begin, int64_t end, int thread);

  void run(int64_t items, int64_t grain, Body body, void* context);
  int64_t take_chunks(uint64_t state, int thread);
  void wait_until_done(int64_t num_chunks);
  void worker(int thread);
  uint64_t wait_for_job(uint64_t seen_epoch);

  const int num_threads_;
  int spin_rounds_ = 0;
  std::mutex caller_mutex_;              // one region at a time
  std::atomic<uint64_t> num_serial_{0};  // chunks that the caller has run by itself

  // Epoch of the region in the high bits, number of chunks not yet taken in the low bits: a thread
  // that slept through a region cannot take a chunk of a later one by mistake.
  alignas(64) std::atomic<uint64_t> state_{0};
  // The region. Written only while no chunk is left to take; a reader's values count only once its
  // compare-and-swap on state_ has succeeded, which proves that the region was still open.
  alignas(64) std::atomic<Body> body_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<int64_t> items_{0};
  std::atomic<int64_t> grain_{1};
  std::atomic<int64_t> num_chunks_{0};
  alignas(64) std::atomic<int64_t> num_done_{0};
  std::atomic<bool> caller_waits_{false};
  std::mutex done_mutex_;
  std::condition_variable done_;

  alignas(64) std::atomic<int> num_sleeping_{0};
  std::atomic<bool> stop_{false};
  std::mutex sleep_mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> threads_;
};

}  // namespace nereid
