// Threads for work that would stall an event loop: parsing large requests, writing large replies.
// Event loops and models have precedence where all processors are busy.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "front/http/message.h"

namespace nereid::front {

// Sizes that an event loop handles in a few milliseconds: JSON that it parses, and tensor bytes
// that it writes as JSON.
inline constexpr size_t kQuickJsonBytes = 256 << 10;
inline constexpr size_t kQuickReplyBytes = 64 << 10;

// Where work for a request runs, by its duration.
enum class Lane {
  kLoop,    // the event loop: up to some 10 ms
  kWorker,  // any worker: up to some 100 ms
  kLong,    // all workers but one, which is left for shorter work
};

// Thrown by work that takes longer than its lane allows; it is repeated in the next lane.
struct TakesLonger {};

class Workers {
 public:
  explicit Workers(int num_threads);
  ~Workers();  // finishes queued work
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Calls `then` with the result of `work`: both at once for kLoop, else `work` on a worker and
  // `then` on the exchange's strand. Skipped for a client that has left. Both must be copyable.
  // `work` may use only request() and disconnected() of the exchange; it gets the lane as an
  // argument if it takes one, and may throw TakesLonger in any but the last. A bad_alloc of `work`
  // is treated as one of `then`.
  template <class Work, class Then>
  void run(const ExchangePtr& exchange, Lane lane, Work work, Then then) {
    if (lane != Lane::kLoop) return push_work(exchange, lane, std::move(work), std::move(then));
    std::optional<decltype(call(work, lane))> result;
    try {
      result.emplace(call(work, lane));
    } catch (const TakesLonger&) {
      return push_work(exchange, Lane::kWorker, std::move(work), std::move(then));
    }
    then(*std::move(result));
  }
  template <class Work, class Then>
  void run(const ExchangePtr& exchange, bool is_quick, Work work, Then then) {
    run(exchange, is_quick ? Lane::kLoop : Lane::kWorker, std::move(work), std::move(then));
  }

  // Runs `job` on a worker.
  void push(std::function<void()> job, Lane lane = Lane::kWorker);

 private:
  using Job = std::function<void()>;

  template <class Work>
  static auto call(Work& work, Lane lane) {
    if constexpr (std::is_invocable_v<Work&, Lane>)
      return work(lane);
    else
      return work();
  }

  template <class Work, class Then>
  void push_work(const ExchangePtr& exchange, Lane lane, Work work, Then then) {
    push(
        [this, exchange, lane, work = std::move(work), then = std::move(then)]() mutable {
          if (exchange->disconnected()) return;
          std::shared_ptr<decltype(call(work, lane))> result;
          std::exception_ptr shortage;
          try {
            result = std::make_shared<decltype(call(work, lane))>(call(work, lane));
          } catch (const TakesLonger&) {
            return push_work(exchange, Lane::kLong, std::move(work), std::move(then));
          } catch (const std::bad_alloc&) {
            shortage = std::current_exception();
          }
          exchange->post([exchange, result, shortage, then = std::move(then)]() mutable {
            if (shortage != nullptr) std::rethrow_exception(shortage);
            if (!exchange->disconnected()) then(std::move(*result));
          });
        },
        lane);
  }

  void close();  // finishes queued work and ends the threads
  void work();
  // The next job, the oldest of its lane; lanes alternate. nullopt: closed and drained.
  std::optional<Job> take(bool& is_long);
  void finish_long();

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Job> jobs_, long_jobs_;
  size_t most_long_ = 1, num_long_ = 0;  // limit and number of running long jobs
  bool is_long_turn_ = false;
  bool is_closed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace nereid::front
