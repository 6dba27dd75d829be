// The sequence batcher: every request of a sequence runs on the same instance, in order. A sequence
// holds a slot of an instance from its first request to its end, and waits in the backlog without a
// free slot. Strategy direct: a slot is a fixed position in the batch. Oldest: slots are
// candidates, whose next requests are batched dynamically, the oldest first.
#pragma once

#include <deque>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "server/batching/batch_rule.h"
#include "server/batching/batcher.h"
#include "server/batching/response_order.h"
#include "server/batching/sequence_inputs.h"
#include "server/batching/start_hold.h"
#include "server/model/model.h"

namespace nereid::server {

class SequenceBatcher;

// The state of one correlation id from a START until the sequence ends. A START in between begins a
// new sequence in the same slot.
struct BatchedSequence {
  CorrelationId id;
  std::deque<InferenceRequest*> waiting;
  int num_running = 0;     // requests at an instance, not yet released
  bool has_ended = false;  // no request will follow
  bool has_slot = false;
  uint64_t seen_ns = 0;  // time of the last request or release
  // Without a slot: the earliest timeout of its requests.
  uint64_t deadline_ns = std::numeric_limits<uint64_t>::max();
  std::unique_ptr<ImplicitStates> states;
  uint32_t client_flags = 0;  // iterative: the flags set by the client, restored at the end
  CorrelationId client_id;
};

// A request's time at an instance: from hand-over to release.
struct SequenceTurn {
  SequenceBatcher* batcher;
  std::shared_ptr<BatchedSequence> lane;
};

class SequenceBatcher : public Batcher {
 public:
  // Requests run on instances [0, num_instances). InvalidArgument: an initial state cannot be read.
  // `model` must outlive the batcher.
  static StatusOr<std::unique_ptr<SequenceBatcher>> create(Model& model, size_t num_instances,
                                                           Drop drop);
  ~SequenceBatcher() override { shut(); }

  // InvalidArgument for a request that belongs to no sequence.
  Status push(InferenceRequest* request) override;
  bool continues(const InferenceRequest& request) override;

  // Called by InferenceRequest when the backend releases a request, for good or
  // for another execution.
  void released(const SequenceTurn& turn, InferenceRequest* request);
  // Queues the request again. InvalidArgument when the sequence has ended meanwhile; the request is
  // then still handed over.
  Status reschedule(const SequenceTurn& turn, InferenceRequest* request);

  // Adds the control inputs and states of a sequence's first request to a warm-up request, which
  // belongs to no sequence.
  void add_warmup_inputs(InferenceRequest& request) const;

 private:
  using Lane = std::shared_ptr<BatchedSequence>;
  struct Instance {
    std::vector<Lane> slots;  // grows as needed; null = free
    std::unique_ptr<ResponseOrder> order;
    std::vector<size_t> planned;  // slots in the next batch
    StartDelay hold{"TRITONSERVER_DELAY_SCHEDULER"};
  };

  SequenceBatcher(Model& model, size_t num_instances, InitialStates initial, Drop drop);

  bool plan(size_t instance, uint64_t now, uint64_t& wake_ns) override;
  std::vector<InferenceRequest*> take_planned(size_t instance) override;
  uint64_t sweep(uint64_t now) override;
  void on_close() override;

  Status check(const InferenceRequest& request) const;
  Status no_start(const CorrelationId& id) const;
  StatusOr<Lane> sequence_for(InferenceRequest& request);
  void place(const Lane& lane);
  void prepare(const Lane& lane, InferenceRequest& request);
  InferenceRequest* hand_over(Instance& instance, size_t slot);
  bool plan_direct(Instance& instance, const std::vector<size_t>& fronts, uint64_t now,
                   uint64_t& wake_ns) const;
  bool plan_oldest(Instance& instance, std::vector<size_t> fronts, uint64_t now,
                   uint64_t& wake_ns) const;
  bool is_held(Instance& instance, size_t num_fronts);
  void end(const Lane& lane);            // marks the sequence as ended
  void leave_if_over(const Lane& lane);  // frees the slot of a sequence that has ended
  void fill_slots();                     // moves sequences from the backlog to free slots
  bool sweep_sequence(const Lane& lane, uint64_t now, uint64_t& next);

  Model& model_;
  const ModelConfig& config_;
  const SequenceBatching& rules_;
  const InitialStates initial_;
  const size_t max_slots_;  // of each instance
  // True: a sequence's next request waits for the release of the previous one.
  const bool one_at_a_time_;
  const uint64_t max_idle_ns_;
  std::vector<Instance> instances_;
  std::list<Lane> backlog_;
  StartDelay backlog_hold_{"TRITONSERVER_BACKLOG_DELAY_SCHEDULER"};
  std::map<CorrelationId, Lane> live_;  // sequences that may get further requests
  uint64_t next_id_ = 0;                // iterative: ids made for requests without one
};

}  // namespace nereid::server
