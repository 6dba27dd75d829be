// Decoding steps kept as recordings of a stream, one for each shape: what a step issues depends on
// its sizes alone, since everything else is read from its arrays in device memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "exec/step_data.h"
#include "tensor/device.h"

namespace nereid::exec {

// More than steps that may be in flight: the least recently used one is not running any more.
inline constexpr size_t kMaxRecordings = 64;
static_assert(kMaxRecordings > kMaxDepth);

// Used inside submitted work of one stream.
class RecordedSteps {
 public:
  // Issues the step: `run` itself for the first step of a shape and for steps that do more than
  // decode, else a recording of it, made at the second.
  Status run(const StepData& step, Stream& stream, const std::function<Status(Stream&)>& run);

 private:
  struct Entry {
    int32_t num_rows = 0, num_logits = 0, max_blocks = 0;
    bool has_adapters = false;
    int64_t last_use = 0;
    std::unique_ptr<Recording> recording;  // null after the first step
  };
  Entry* find(const StepData& step);
  Entry& add(const StepData& step);

  std::vector<Entry> entries_;
  int64_t num_uses_ = 0;
  bool works_ = true;  // until the device says that it gains nothing, or fails
};

}  // namespace nereid::exec
