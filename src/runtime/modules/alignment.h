// Scores of cross attention that clients ask for (OutputConfig::alignment_heads).
#pragma once

#include "absl/container/flat_hash_set.h"
#include "runtime/step_module.h"

namespace nereid::runtime {

class Alignment final : public StepModule {
 public:
  void open(const sched::SequenceSpec& spec, const Submit& request) override;
  void close(RequestId id) override { open_.erase(id); }
  bool empty() const override { return open_.empty(); }
  void write(const sched::ScheduledRow& row, const RowMessage& to) override;
  // Gathers the row's scores in the sequence's payload; with the prompt's last row all of them go
  // into the update.
  Status completed(const LandedRow& completed, EngineUpdate& update) override;

 private:
  absl::flat_hash_set<RequestId> open_;  // sequences that wait for their scores
};

}  // namespace nereid::runtime
