// A hash of all tokens that the engine has given since its start, to compare runs: ranks, replays
// and runs with other options that get the same requests in the same order have the same hash. It
// is a sum over tokens, so it does not depend on their steps. Beam searches are left out.
#include <vector>

#include "base/rng.h"
#include "runtime/step_modules.h"

namespace nereid::runtime {
namespace {

class RunHash : public StepModule {
 public:
  Status completed(const LandedRow& completed, EngineUpdate&) override {
    const sched::ScheduledRow& row = completed.row;
    if (row.samples && !completed.is_late)
      rows_.push_back({row.sequence->id(), row.first_sampled()});
    return ok();
  }

  // Updates come in the order of rows, and have the drawn tokens that were kept.
  void finished(const FinishedStep& step) override {
    auto row = rows_.begin();
    for (const EngineUpdate& update : step.updates) {
      if (update.row.tokens.empty()) continue;
      while (row != rows_.end() && row->id != update.row.id) ++row;
      if (row == rows_.end()) break;  // a sequence without a row in this step
      auto position = static_cast<uint64_t>(row->first_sampled);
      for (const TokenId token : update.row.tokens)
        sum_ += hash_of(update.row.id, position++, token);
    }
    rows_.clear();
  }

  // 53 bits, which JSON's numbers keep.
  void report(ExecutorStats& stats) const override {
    stats.add_figure("run_hash", static_cast<int64_t>(sum_ & ((uint64_t{1} << 53) - 1)));
  }

 private:
  struct DrawnRow {
    RequestId id = 0;
    int32_t first_sampled = 0;  // position
  };

  static uint64_t hash_of(RequestId id, uint64_t position, TokenId token) {
    const auto words = philox(id, position, static_cast<uint64_t>(token));
    return uint64_t{words[0]} << 32 | words[1];
  }

  std::vector<DrawnRow> rows_;  // of the step that is being committed
  uint64_t sum_ = 0;
};

}  // namespace

std::unique_ptr<StepModule> make_run_hash() { return std::make_unique<RunHash>(); }

}  // namespace nereid::runtime
