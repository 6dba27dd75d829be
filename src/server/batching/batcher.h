// A batcher: the queue between a model's requests and its instances, which take batches out.
// Waiting, the timer and rejection are common to all batchers; which requests form a batch, and
// when, is decided by the derived class.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/status.h"
#include "server/request/request.h"

namespace nereid::server {

// Permission to execute for one instance, which shares resources with others; one
// execution at a time.
class Gate {
 public:
  virtual ~Gate() = default;
  // Waits for a turn. An instance that is inside gives its turn back and asks for the next one in
  // one step, so that it takes part in the choice.
  virtual void enter() = 0;
  virtual void leave() = 0;
  virtual bool is_inside() const = 0;  // for the caller of enter() and leave()
};

class Batcher {
 public:
  // Takes a request that will not run: cancelled, or over its timeout. Called without the lock.
  using Drop = std::function<void(InferenceRequest*, const Status&)>;

  virtual ~Batcher() = default;  // A derived class calls shut() first in its destructor.
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  // Queues an armed request. On an error the caller keeps it.
  virtual Status push(InferenceRequest* request) = 0;

  // Whether `request` continues a sequence that a stopping model still finishes.
  virtual bool continues(const InferenceRequest&) { return false; }

  // The next batch of instance number `instance`; blocks until there is one. With a gate, enters it
  // first: the batch is formed after the wait, and the next take() leaves the gate. Empty: closed
  // and drained, or let_go() was called for the instance.
  std::vector<InferenceRequest*> take(size_t instance, Gate* gate);

  // Makes take() of this instance return empty; only for batchers whose requests may
  // run on any instance.
  void let_go(size_t instance);

  // Refuses further requests; take() still returns those queued.
  void close();

 protected:
  using Lock = std::unique_lock<std::mutex>;
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  explicit Batcher(Drop drop);

  // All of these run with mutex_ held. plan(): whether there is a batch to run now; if not,
  // `wake_ns` is the time of the next check. take_planned(): the batch of the last plan().
  virtual bool plan(size_t instance, uint64_t now, uint64_t& wake_ns) = 0;
  virtual std::vector<InferenceRequest*> take_planned(size_t instance) = 0;
  // Rejects cancelled and late requests by reject(), and returns the time of the next sweep.
  virtual uint64_t sweep(uint64_t now) = 0;
  virtual void on_close() {}

  void reject(InferenceRequest* request, Status status) {
    rejected_.emplace_back(request, std::move(status));
  }
  // Schedules sweep() for `at_ns`.
  void wake_at(uint64_t at_ns);
  void changed() { changed_.notify_all(); }
  // changed() for a change that one instance can handle, where any may.
  void changed_for_one() { changed_.notify_one(); }

  // To be called before a request is queued, without the lock: subscribes to its cancellation.
  void watch(const InferenceRequest& request);
  // To be called after a request is queued, with the lock: checks whether it was
  // cancelled in between.
  void watched(const InferenceRequest& request);

  void start();  // starts the timer; last statement of a constructor
  void shut();   // closes and joins the timer

  std::mutex mutex_;
  bool closed_ = false;

 private:
  // The target of the requests' cancel callbacks, which may outlive the batcher.
  struct CancelTarget {
    std::mutex mutex;
    Batcher* batcher = nullptr;
  };

  void ring();
  bool sweep_if_due(Lock& lock, uint64_t now);
  void run_timer();

  const Drop drop_;
  std::condition_variable changed_, timer_wakes_;
  std::vector<std::pair<InferenceRequest*, Status>> rejected_;
  std::set<size_t> let_go_;
  std::atomic<bool> has_cancelled_{false};
  uint64_t due_ns_ = kNever;
  std::shared_ptr<CancelTarget> cancel_target_ = std::make_shared<CancelTarget>();
  std::thread timer_;
};

}  // namespace nereid::server
