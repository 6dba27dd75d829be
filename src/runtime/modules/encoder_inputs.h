// Encoder inputs of a step, what each row reads of their results, and outputs for clients.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "runtime/step_module.h"

namespace nereid::runtime {

class EncoderInputs final : public StepModule {
 public:
  // `block_tokens`: rows of a block of results.
  explicit EncoderInputs(int32_t block_tokens) : block_tokens_(block_tokens) {}

  void attach(sched::Scheduler& scheduler) override { scheduler_ = &scheduler; }
  void open(const sched::SequenceSpec& spec, const Submit& request) override;
  void close(RequestId id) override { open_.erase(id); }
  bool empty() const override { return open_.empty(); }
  bool planned(const sched::StepPlan& plan, const sched::Scheduler&,
               exec::StepMessage& step) override;
  void write(const sched::ScheduledRow& row, const RowMessage& to) override;
  // Keeps outputs in the payloads of sequences that asked for them.
  void encoded(std::span<const exec::EncodedInput> outputs) override;
  // A sequence's output goes into the update of its first row behind it.
  Status completed(const LandedRow& completed, EngineUpdate& update) override;
  void finished(const FinishedStep& step) override;
  // Encoder inputs computed, and results that were found.
  void report(ExecutorStats& stats) const override;

 private:
  // A sequence whose output was not sent yet.
  struct Wanted {
    std::shared_ptr<EncoderOutput> output;
    bool is_there = false;
  };
  using Returned = std::vector<RequestId>;

  // Whether the step returns the input's output, as the first one of its sequence's request.
  bool is_returned(const sched::PlannedEncode& encode, Returned& returned) const;

  const int32_t block_tokens_;
  absl::flat_hash_map<RequestId, Wanted> open_;
  std::deque<Returned> in_flight_;  // of steps with encoder inputs: sequences of their outputs
  const sched::Scheduler* scheduler_ = nullptr;
  int64_t num_computed_ = 0;
};

}  // namespace nereid::runtime
