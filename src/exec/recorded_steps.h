// Recorded decode steps (CUDA graphs), one per shape: the issued work depends on a step's sizes
// only; all else is read from device memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "exec/step_data.h"
#include "tensor/device.h"

namespace nereid::exec {

// > steps in flight, so that the least recently used recording is not running.
inline constexpr size_t kMaxRecordings = 64;
static_assert(kMaxRecordings > kMaxDepth);

// Used inside submitted work of one stream.
class RecordedSteps {
 public:
  // Issues the step: calls `run` for the first step of a shape and for steps with prefill, else
  // replays the recording made at the second.
  Status run(const StepData& step, Stream& stream, const std::function<Status(Stream&)>& run);

 private:
  struct Entry {
    int32_t num_rows = 0, num_logits = 0, max_blocks = 0, max_cross_blocks = 0;
    bool has_adapters = false;
    int64_t last_use = 0;
    std::unique_ptr<Recording> recording;  // null after the first step
  };
  Entry* find(const StepData& step);
  Entry& add(const StepData& step);

  std::vector<Entry> entries_;
  int64_t num_uses_ = 0;
  bool works_ = true;  // false after the device declined or failed to record
};

}  // namespace nereid::exec
