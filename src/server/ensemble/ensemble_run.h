// One request on its way through an ensemble.
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

// A tensor between steps: shape with its owner's memory; cheap to copy.
struct FlowTensor {
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  Shape shape;  // as the ensemble sees it
  InputBuffers buffers;
  std::shared_ptr<InferenceResponse> owner;  // null: memory of the ensemble's request
};

// Everything happens in serial events, so state needs no lock, callbacks run without one, and a
// callback may call back in.
class EnsembleRun : public std::enable_shared_from_this<EnsembleRun> {
 public:
  EnsembleRun(const EnsembleModel& model, InferenceRequest* request,
              std::shared_ptr<ResponseContext> context);
  void start();

 private:
  // A state of the flow. A decoupled step gives its branch one child per response; the branch
  // itself is then over.
  struct Branch {
    std::vector<std::shared_ptr<const FlowTensor>> tensors;  // by tensor; null = absent
    std::vector<bool> done;                                  // by step
    std::vector<bool> started;
    int num_running = 0;
    const EnsembleModel::Step* fork = nullptr;  // the decoupled step that forked it
    bool fork_final = false;
    std::deque<std::shared_ptr<Branch>> children;
    bool counted = false;   // in num_active_
    bool inside = false;    // in num_inside_
    bool complete = false;  // nothing left to run: its response may leave
  };
  using BranchPtr = std::shared_ptr<Branch>;
  struct StepCall;

  template <class Event>
  void post(Event event);
  // Calls `work`; what it throws ends the request.
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
  // Sends what is complete, in order; true when all of `branch` has left.
  bool flush(Branch& branch, bool is_last);
  void emit(Branch& branch, bool is_final);
  void fail(const Status& status);
  void finish_if_over();

  // Backpressure, with max_inflight_requests: the thread that brings responses of a decoupled step
  // waits until fewer than that many are on their way. Only before the first fork: steps behind one
  // have to run for room to come.
  void enter_room();
  void wait_for_room(const EnsembleModel::Step& step);
  void leave_room(Branch& branch);
  void open_room();  // for ever: the request is over

  const EnsembleModel& model_;
  InferenceRequest* request_;  // the core's until release
  std::shared_ptr<ResponseContext> context_;
  StageSums stage_sums_;
  BranchPtr root_;
  std::deque<BranchPtr> waiting_;        // forked, not yet allowed to run
  size_t num_active_ = 0;                // forked branches with steps to run
  std::set<InferenceRequest*> running_;  // step requests, for cancellation
  size_t num_open_ = 0;                  // step requests not yet both released and final
  bool failed_ = false, final_sent_ = false, released_ = false;

  SerialEvents events_;
  std::mutex room_mutex_;
  std::condition_variable room_changed_;
  const size_t room_limit_;  // 0 = none
  size_t num_inside_ = 0;
  bool is_room_open_ = false;
};

}  // namespace nereid::server
