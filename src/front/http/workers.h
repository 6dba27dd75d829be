// Threads for work that would hold up an event loop: reading large requests, writing large replies.
// They come after event loops and models where all processors are busy.
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

// JSON that an event loop reads, and tensor bytes that it writes as JSON, in a few milliseconds.
inline constexpr size_t kQuickJsonBytes = 256 << 10;
inline constexpr size_t kQuickReplyBytes = 64 << 10;

// Where work for a request is done, by how long it may take there.
enum class Lane {
  kLoop,    // the event loop: up to some 10 ms
  kWorker,  // any worker: up to some 100 ms
  kLong,    // all workers but one: one is left for what is shorter
};

// Thrown by work that would take longer than its lane allows, which is done again in the next one.
struct TakesLonger {};

class Workers {
 public:
  explicit Workers(int num_threads);
  ~Workers();  // does what is queued
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Calls `then` with the result of `work`: all here and now in the loop's lane, else `work` on a
  // thread of this and `then` on the exchange's strand. Nothing is done for a client that has left.
  // Both must be copyable, `work` may use nothing of the exchange but its request and
  // disconnected(); it is told the lane where it takes one, and may throw TakesLonger in any but
  // the last. A shortage of memory in `work` is one in `then`'s place.
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

  // Does `job` on a thread of this.
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

  void close();  // does what is queued, and ends the threads
  void work();
  // The next job, the oldest of its lane; the lanes take turns. nullopt: closed and drained.
  std::optional<Job> take(bool& is_long);
  void finish_long();

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Job> jobs_, long_jobs_;
  size_t most_long_ = 1, num_long_ = 0;  // long jobs at a time
  bool is_long_turn_ = false;
  bool is_closed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace nereid::front
