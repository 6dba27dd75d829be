// Threads for work that would stall an event loop: parsing large requests, writing large replies.
// Event loops and models have precedence where all processors are busy.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
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
  kFetch,   // threads of their own: work that first waits for other machines
};

// Thrown by work that takes longer than its lane allows; it is repeated in the next lane.
struct TakesLonger {};
// Thrown, in any lane but kFetch, by work that waits for other machines; it is repeated there.
struct WaitsForOthers {};

// Works of kFetch that run at once: of all, and of one tenant.
inline constexpr size_t kMostFetches = 16, kTenantFetches = 8;

class Workers {
 public:
  explicit Workers(int num_threads);
  ~Workers();  // finishes queued work
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Calls `then` with the result of `work`: both at once for kLoop, else `work` on a worker and
  // `then` on the exchange's strand. Skipped for a client that has left. Both must be copyable.
  // `work` may use only request() and disconnected() of the exchange; it gets the lane as an
  // argument if it takes one, and may throw TakesLonger in the first two and WaitsForOthers in any
  // but the last. A bad_alloc of `work` is treated as one of `then`.
  template <class Work, class Then>
  void run(const ExchangePtr& exchange, Lane lane, Work work, Then then) {
    if (lane != Lane::kLoop) return push_work(exchange, lane, std::move(work), std::move(then));
    std::optional<decltype(call(work, lane))> result;
    try {
      result.emplace(call(work, lane));
    } catch (const TakesLonger&) {
      return push_work(exchange, Lane::kWorker, std::move(work), std::move(then));
    } catch (const WaitsForOthers&) {
      return push_work(exchange, Lane::kFetch, std::move(work), std::move(then));
    }
    then(*std::move(result));
  }
  template <class Work, class Then>
  void run(const ExchangePtr& exchange, bool is_quick, Work work, Then then) {
    run(exchange, is_quick ? Lane::kLoop : Lane::kWorker, std::move(work), std::move(then));
  }

  // Runs `job` on a thread of the lane; `tenant`: whose it is, for kFetch.
  void push(std::function<void()> job, Lane lane = Lane::kWorker, uint64_t tenant = 0);

  // To be called by work of kFetch that has waited and now computes: from here to its end it counts
  // as one of kLong. Blocks until there is room for it.
  void count_as_long();

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
          } catch (const WaitsForOthers&) {
            return push_work(exchange, Lane::kFetch, std::move(work), std::move(then));
          } catch (const std::bad_alloc&) {
            shortage = std::current_exception();
          }
          exchange->post([exchange, result, shortage, then = std::move(then)]() mutable {
            if (shortage != nullptr) std::rethrow_exception(shortage);
            if (!exchange->disconnected()) then(std::move(*result));
          });
        },
        lane, exchange->request().tenant);
  }

  void close();  // finishes queued work and ends the threads
  void work();
  // The next job, the oldest of its lane; lanes alternate. nullopt: closed and drained.
  std::optional<Job> take(bool& is_long);
  void finish_long();
  void push_fetch(Job job, uint64_t tenant);
  void fetch();
  // The next job of kFetch: tenants take turns, each has at most kTenantFetches running.
  std::optional<Job> take_fetch(uint64_t& tenant);

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Job> jobs_, long_jobs_;
  size_t most_long_ = 1, num_long_ = 0;  // limit and number of running long jobs
  bool is_long_turn_ = false;
  bool is_closed_ = false;
  std::vector<std::thread> threads_;

  struct Fetches {
    std::deque<Job> waiting;
    size_t num_running = 0;
  };
  std::condition_variable fetch_ready_, long_ended_;
  std::map<uint64_t, Fetches> fetches_;    // by tenant; none is empty
  uint64_t last_tenant_ = 0;               // whose job was taken last
  size_t num_waiting_ = 0, num_idle_ = 0;  // jobs of kFetch that wait; its threads without a job
  std::vector<std::thread> fetch_threads_;
};

}  // namespace nereid::front
