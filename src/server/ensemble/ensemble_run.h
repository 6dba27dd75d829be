// One request's way through an ensemble.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "base/serial.h"
#include "server/ensemble/ensemble.h"
#include "server/metrics/statistics.h"
#include "server/request/response.h"

namespace nereid::server {

// A tensor between steps: its shape and the owner of its memory; cheap to copy.
struct FlowTensor {
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  Shape shape;  // shape as declared by the ensemble
  InputBuffers buffers;
  std::shared_ptr<InferenceResponse> owner;  // null: memory of the ensemble's request
};

// A state machine of serial events: its state needs no lock, callbacks run without one, and a
// callback may re-enter.
class EnsembleRun : public std::enable_shared_from_this<EnsembleRun> {
 public:
  EnsembleRun(const EnsembleModel& model, InferenceRequest* request,
              std::shared_ptr<ResponseContext> context);
  void start();

 private:
  // A branch of the flow. A decoupled step adds a child branch per response, and its own
  // branch is then over.
  struct Branch {
    std::vector<std::shared_ptr<const FlowTensor>> tensors;  // by tensor; null = absent
    std::vector<bool> done;                                  // by step
    std::vector<bool> started;
    int num_running = 0;
    const EnsembleModel::Step* fork = nullptr;  // the decoupled step that forked this branch
    bool fork_final = false;
    std::deque<std::shared_ptr<Branch>> children;
    bool counted = false;   // counted in num_active_
    bool inside = false;    // counted in num_inside_
    bool complete = false;  // no step left: the response may be sent
  };
  using BranchPtr = std::shared_ptr<Branch>;
  struct StepCall;

  template <class Event>
  void post(Event event);
  // Calls `work`; an exception fails the request.
  template <class Work>
  void contain(Work work);
  void skip_unwanted_steps();
  void advance(const BranchPtr& branch);
  void launch(const BranchPtr& branch, size_t step);
  void add_inputs(const Branch& branch, const EnsembleModel::Step& step, StepCall& call) const;
  bool settled(const Branch& branch, const EnsembleModel::Step& step) const;
  void on_response(const BranchPtr& branch, size_t step,
                   std::shared_ptr<InferenceResponse> response, bool is_final, bool is_inside);
  void store_outputs(Branch& branch, const EnsembleModel::Step& step,
                     const std::shared_ptr<InferenceResponse>& response) const;
  void complete(Branch& branch);
  void cancel_steps();
  void start_waiting();
  void report_success();
  void flush_all();
  // Sends complete responses, in order; true when all of `branch` is sent.
  bool flush(Branch& branch, bool is_last);
  void emit(Branch& branch, bool is_final);
  void fail(const Status& status);
  void finish_if_over();

  // Backpressure, with max_inflight_requests: a thread that sends responses of a decoupled step
  // waits until fewer than that many are in flight. Only for the first fork: the steps behind it
  // must run for others to finish.
  void enter_room();
  void wait_for_room(const EnsembleModel::Step& step);
  void leave_room(Branch& branch);
  void open_room();  // permanently: the request is over

  const EnsembleModel& model_;
  InferenceRequest* request_;  // owned by the core until release
  std::shared_ptr<ResponseContext> context_;
  StageSums stage_sums_;
  BranchPtr root_;
  std::deque<BranchPtr> waiting_;        // forked branches over the limit
  size_t num_active_ = 0;                // forked branches with running steps
  std::set<InferenceRequest*> running_;  // step requests, kept for cancellation
  size_t num_open_ = 0;                  // step requests that are not both released and final
  bool failed_ = false, final_sent_ = false, released_ = false;

  SerialEvents events_;
  std::mutex room_mutex_;
  std::condition_variable room_changed_;
  const size_t room_limit_;  // 0 = none
  size_t num_inside_ = 0;
  bool is_room_open_ = false;
};

}  // namespace nereid::server
