// What stands between a model's requests and its instances: requests wait in a batcher, instances
// take batches out. The waiting, the timer and the drops are the same for all; which requests go
// together, and when, is the derived class's.
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

// Leave to execute, for instances that share resources. One execution at a time for each gate.
class Gate {
 public:
  virtual ~Gate() = default;
  // Waits for its turn. Inside, it gives up the present turn for the next in the same moment, so
  // that it is among those that are chosen from.
  virtual void enter() = 0;
  virtual void leave() = 0;
  virtual bool is_inside() const = 0;  // for who calls the others
};

class Batcher {
 public:
  // Takes a request that will not run: cancelled, or it waited too long. Called without the lock.
  using Drop = std::function<void(InferenceRequest*, const Status&)>;

  virtual ~Batcher() = default;  // of a derived class: calls shut() first
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  // The request must be armed. Otherwise than OK, it stays the caller's.
  virtual Status push(InferenceRequest* request) = 0;

  // Whether `request` goes on with something that a stopping model finishes first.
  virtual bool continues(const InferenceRequest&) { return false; }

  // What instance number `instance` runs next; sleeps until there is something. With a gate: it is
  // entered, and the batch is what waits when the turn has come; the next take() ends the turn.
  // Empty: closed and drained, or the instance was let go.
  std::vector<InferenceRequest*> take(size_t instance, Gate* gate);

  // The instance takes nothing more; only where any instance may run any request.
  void let_go(size_t instance);

  // No request comes any more; take() hands out what is there.
  void close();

 protected:
  using Lock = std::unique_lock<std::mutex>;
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  explicit Batcher(Drop drop);

  // All of these with mutex_ held. plan(): is there a batch to run now? Otherwise `wake_ns` says
  // when to look again. take_planned(): the batch of the plan() just made.
  virtual bool plan(size_t instance, uint64_t now, uint64_t& wake_ns) = 0;
  virtual std::vector<InferenceRequest*> take_planned(size_t instance) = 0;
  // Takes out what is cancelled or late, by reject(), and returns when time alone makes the next
  // call necessary.
  virtual uint64_t sweep(uint64_t now) = 0;
  virtual void on_close() {}

  void reject(InferenceRequest* request, Status status) {
    rejected_.emplace_back(request, std::move(status));
  }
  // sweep() is wanted at `at_ns`.
  void wake_at(uint64_t at_ns);
  void changed() { changed_.notify_all(); }
  // The same, where any instance may run what is new: one of them suffices.
  void changed_for_one() { changed_.notify_one(); }

  // Before a request is queued, without the lock: its cancellation will be noticed at once.
  void watch(const InferenceRequest& request);
  // After it was queued, with the lock: it may have been cancelled in between.
  void watched(const InferenceRequest& request);

  void start();  // the timer; last thing of a constructor
  void shut();   // closes and ends the timer

  std::mutex mutex_;
  bool closed_ = false;

 private:
  // Outlives the batcher in the requests' cancel states.
  struct Bell {
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
  std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  std::thread timer_;
};

}  // namespace nereid::server
