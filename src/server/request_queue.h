// The requests of one model that wait for an instance: priority levels, queue policies, and the
// batches that the dynamic batcher forms.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/status.h"
#include "server/model_config.h"
#include "server/request.h"

namespace nereid::server {

class RequestQueue {
 public:
  // Takes a request that will not run: cancelled, or it waited too long. Called without the lock.
  using Drop = std::function<void(InferenceRequest*, const Status&)>;

  // `config` must outlive the queue.
  RequestQueue(const ModelConfig& config, Drop drop);
  ~RequestQueue();

  // Unavailable: the queue is closed, or full by its policy.
  Status push(InferenceRequest* request);

  // What an instance runs next; sleeps until there is something. Empty: closed and drained.
  std::vector<InferenceRequest*> take();

  void close();

 private:
  struct Waiting {
    InferenceRequest* request;
    uint64_t deadline_ns;  // 0 = none
  };
  struct Level {
    QueuePolicy policy;
    std::deque<Waiting> waiting, delayed;  // delayed: too late, but allowed to run after the others
  };
  struct Dropped {
    InferenceRequest* request;
    Status status;
  };
  using Lock = std::unique_lock<std::mutex>;

  Level& level_of(const InferenceRequest& request);
  // Moves cancelled and late requests out of the levels.
  void sweep(uint64_t now, std::vector<Dropped>& dropped);
  // The next batch, if it is to run now. Otherwise `wake_ns` says when to look again.
  std::vector<InferenceRequest*> form_batch(uint64_t now, uint64_t& wake_ns);
  std::vector<InferenceRequest*> remove_first(size_t count);
  bool fits(const InferenceRequest& first, const InferenceRequest& next) const;
  uint64_t next_deadline() const;
  void drop_all(Lock& lock, std::vector<Dropped>& dropped);
  void expire();  // thread: ends late requests while every instance is busy

  const ModelConfig& config_;
  const Drop drop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Level> levels_;  // highest priority first
  bool closed_ = false;
  std::thread expirer_;
};

}  // namespace nereid::server
