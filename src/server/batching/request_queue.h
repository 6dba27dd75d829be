// The dynamic batcher's queue, for models without sequences: priority levels, queue policies,
// batches. Any instance runs any request.
#pragma once

#include <deque>
#include <vector>

#include "server/batching/batch_rule.h"
#include "server/batching/batcher.h"
#include "server/batching/start_hold.h"
#include "server/config/model_config.h"

namespace nereid::server {

class RequestQueue : public Batcher {
 public:
  // `config` and `strategy` (may be null) must outlive the queue.
  RequestQueue(const ModelConfig& config, const BatchStrategy* strategy, Drop drop);
  ~RequestQueue() override { shut(); }

  // Unavailable: the queue is closed, or full by its queue policy.
  Status push(InferenceRequest* request) override;

 private:
  struct Waiting {
    InferenceRequest* request;
    uint64_t deadline_ns;  // 0 = none
  };
  struct Level {
    QueuePolicy policy;
    // Delayed: past their timeout, but allowed to run after the others.
    std::deque<Waiting> waiting, delayed;
  };

  bool plan(size_t instance, uint64_t now, uint64_t& wake_ns) override;
  std::vector<InferenceRequest*> take_planned(size_t instance) override;
  uint64_t sweep(uint64_t now) override;
  Level& level_of(const InferenceRequest& request);
  bool is_held();

  const ModelConfig& config_;
  BatchRule rule_;
  std::vector<Level> levels_;  // highest priority first
  size_t planned_ = 0;
  StartDelay hold_{"TRITONSERVER_DELAY_SCHEDULER"};  // test hook of the dynamic batcher
};

}  // namespace nereid::server
