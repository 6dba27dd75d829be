// Step module that gives BatchRecorder the spans of sequences, while it records.
#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "exec/runner.h"
#include "runtime/outputs/stats_rings.h"
#include "runtime/step_modules.h"

namespace nereid::runtime {
namespace {

class BatchWatch : public StepModule {
 public:
  BatchWatch(BatchRecorder& recorder, const Clock& clock) : recorder_(recorder), clock_(clock) {}

  bool planned(const sched::StepPlan& plan, const sched::Scheduler& scheduler,
               exec::StepMessage&) override {
    const Time now = clock_.now();
    const bool did_record = std::exchange(records_, recorder_.is_recording(now));
    if (did_record && !records_) recorder_.stop();
    if (records_) {
      for (const sched::SequenceState& s : scheduler.sequences())
        recorder_.seen(s.id, s.arrival, s.prompt_tokens, s.waits, s.was_started, now);
    }
    if (plan.empty()) return false;
    NEREID_CHECK(num_in_flight_ < in_flight_.size());
    auto& rows = in_flight_[(oldest_ + num_in_flight_++) % in_flight_.size()];
    rows.clear();
    if (!records_) return false;
    for (const sched::ScheduledRow& row : plan.rows)
      if (row.beam == 0)
        rows.push_back({.id = row.sequence->id(),
                        .is_prefill = row.start < row.sequence->num_prompt(),
                        .tokens = row.num_tokens});
    return false;
  }

  void close(RequestId id) override {
    if (records_) recorder_.ended(id);
  }

  void finished(const FinishedStep& step) override {
    if (step.plan.empty()) return;
    const std::vector<BatchRecorder::Row>& rows = in_flight_[oldest_];
    oldest_ = (oldest_ + 1) % in_flight_.size();
    --num_in_flight_;
    if (!records_) return;
    recorder_.ran(rows, step.launched, step.finished);
    for (const EngineUpdate& update : step.updates)
      if (!update.row.tokens.empty())
        recorder_.generated(update.row.id, static_cast<int32_t>(update.row.tokens.size()));
  }

 private:
  BatchRecorder& recorder_;
  const Clock& clock_;
  bool records_ = false;
  // Rows of steps in flight; their memory is kept, as decoding takes none.
  std::array<std::vector<BatchRecorder::Row>, exec::kMaxDepth + 1> in_flight_;
  size_t oldest_ = 0, num_in_flight_ = 0;
};

}  // namespace

std::unique_ptr<StepModule> make_batch_watch(BatchRecorder& recorder, const Clock& clock) {
  return std::make_unique<BatchWatch>(recorder, clock);
}

}  // namespace nereid::runtime
