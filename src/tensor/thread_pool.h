// Fork-join pool of the CPU kernels: the caller is thread 0; workers spin, then sleep.
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
  // `num_threads` >= 1 includes the caller; num_threads - 1 threads are started.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }
  // Changes with every chunk. Thread-safe.
  uint64_t progress() const {
    return state_.load(std::memory_order_relaxed) + num_serial_.load(std::memory_order_relaxed);
  }

  // Whether the time of threads inside fn is counted; false at first. From one thread at a time.
  void count_busy(bool on) { counts_busy_.store(on, std::memory_order_relaxed); }
  // Counted seconds of each thread since the start; complete between calls of parallel_for.
  std::vector<double> busy_seconds() const;

  // Calls fn(begin, end, thread) for disjoint ranges covering [0, items); returns when all are
  // done. Ranges start at multiples of `grain` with length <= `grain`: the division is independent
  // of threads and timing, the assignment is not. `thread` in [0, num_threads()) is unique among
  // concurrent ranges. Threads suspended before taking a range are not waited for. Concurrent
  // callers take turns; not from inside fn. fn must not throw.
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
  struct alignas(64) Busy {
    std::atomic<int64_t> nanoseconds{0};
  };

  void run(int64_t items, int64_t grain, Body body, void* context);
  void call(Body body, void* context, int64_t begin, int64_t end, int thread);
  int64_t take_chunks(uint64_t state, int thread);
  void wait_until_done(int64_t num_chunks);
  void worker(int thread);
  uint64_t wait_for_job(uint64_t seen_epoch);

  const int num_threads_;
  int spin_rounds_ = 0;
  std::atomic<bool> counts_busy_{false};
  const std::unique_ptr<Busy[]> busy_;   // by thread
  std::mutex caller_mutex_;              // serialises regions
  std::atomic<uint64_t> num_serial_{0};  // chunks run by the caller alone

  // (epoch of the region, chunks not yet taken): a thread that slept through a region cannot take a
  // chunk of a later one.
  alignas(64) std::atomic<uint64_t> state_{0};
  // The region. Written only while no chunk is left; a reader's values are valid once its
  // compare-and-swap on state_ succeeds, which proves that the region was open.
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
