// Scores of chosen heads of cross attention, for rows that ask for them (StepRow::
// num_scored_heads): memory on the device and the host, and the results of rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "exec/runner.h"
#include "exec/step_data.h"
#include "exec/step_message.h"
#include "tensor/device.h"

namespace nereid::exec {

class AttentionScores {
 public:
  AttentionScores() = default;  // no row may ask for scores
  // `heads`: that rows may name. The device outlives this.
  AttentionScores(Device& device, ScoredHeads heads, int32_t depth)
      : device_(&device), heads_(heads), staging_(static_cast<size_t>(depth)) {}

  // Checks the message's heads and keeps them for `index`. Rows without memory for their scores
  // fail alone, see add_to(). InvalidArgument: the message. Precondition: StepData::pack() took it.
  Status stage(const StepMessageView& message, int32_t index);
  // The calls of the step staged last under `index`; empty: no row asks for scores.
  std::span<const ScoreCall> calls(int32_t index) const;
  // Copies the scores to the host; on the stream, behind the calls.
  Status read(int32_t index, Stream& stream) const;
  // The results of a step's rows with RowResult::scores; valid until `index` is staged again.
  StepResult add_to(StepResult results, int32_t index);

 private:
  struct Staging {
    Buffer host, device;
    size_t bytes = 0;  // of the step's scores
    Status status;     // of their memory
    std::vector<ScoreCall> calls;
    std::vector<std::span<const float>> rows;  // scores of each row; empty: no row has any
    std::vector<bool> asks;                    // by row
    std::vector<RowResult> results;
  };

  Status check(const StepRow& row, std::span<const ScoredHead> heads) const;
  Status reserve(Staging& staging) const;

  Device* device_ = nullptr;
  ScoredHeads heads_;
  std::vector<Staging> staging_;  // [depth]
};

}  // namespace nereid::exec
