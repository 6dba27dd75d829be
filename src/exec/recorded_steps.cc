#include "exec/recorded_steps.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace nereid::exec {

RecordedSteps::Entry* RecordedSteps::find(const StepData& step) {
  for (Entry& e : entries_)
    if (e.num_rows == step.num_rows && e.num_logits == step.num_logits &&
        e.max_blocks == step.max_blocks && e.max_cross_blocks == step.max_cross_blocks &&
        e.has_adapters == (step.adapters != nullptr))
      return &e;
  return nullptr;
}

RecordedSteps::Entry& RecordedSteps::add(const StepData& step) {
  if (entries_.size() >= kMaxRecordings) {
    entries_.erase(std::ranges::min_element(entries_, {}, &Entry::last_use));
  }
  Entry& entry = entries_.emplace_back();
  entry.num_rows = step.num_rows;
  entry.num_logits = step.num_logits;
  entry.max_blocks = step.max_blocks;
  entry.max_cross_blocks = step.max_cross_blocks;
  entry.has_adapters = step.adapters != nullptr;
  return entry;
}

Status RecordedSteps::run(const StepData& step, Stream& stream,
                          const std::function<Status(Stream&)>& run) {
  if (!works_ || step.num_tokens != step.num_rows || step.num_embeddings > 0 ||
      !step.scores.empty() || step.cross_mask)
    return run(stream);
  Entry* entry = find(step);
  const bool is_new = entry == nullptr;
  if (is_new) entry = &add(step);
  entry->last_use = ++num_uses_;
  if (is_new) return run(stream);
  if (!entry->recording) {
    StatusOr<std::unique_ptr<Recording>> recording = stream.record(run);
    if (!recording.ok()) log_warn("steps are issued call by call: {}", message(recording.status()));
    if (!recording.ok() || !*recording) {
      works_ = false;  // existing recordings may be in flight and stay
      return run(stream);
    }
    entry->recording = *std::move(recording);
  }
  return stream.replay(*entry->recording);
}

}  // namespace nereid::exec
