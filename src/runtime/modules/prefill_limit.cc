// PrefillLimit: divides measured times of steps.
#include "runtime/modules/prefill_limit.h"

#include <algorithm>
#include <functional>

namespace nereid::runtime {
namespace {

// Least part of a step's time that its prefill is taken to cost: times of decodes alone vary.
constexpr double kLeastPart = 1.0 / 16;

}  // namespace

bool PrefillLimit::offer(sched::Scheduler& scheduler, bool) {
  scheduler.limit_prefill(std::max(tokens(), scheduler.limits().tokens_per_block));
  return true;
}

void PrefillLimit::finished(const FinishedStep& step) {
  const bool encodes = !step.plan.encodes.empty();
  if (step.plan.rows.empty() && !encodes) return;
  const double taken = seconds(step.finished - std::max(step.launched, last_end_));
  last_end_ = step.finished;
  if (step.failed || encodes || taken <= 0) return;
  int32_t num_prefill = 0, num_decodes = 0;
  for (const sched::ScheduledRow& row : step.plan.rows)
    if (row.num_tokens > 1 + row.num_drafts)
      num_prefill += row.num_tokens;
    else
      num_decodes += row.num_tokens;
  if (num_prefill == 0) decodes_.add(num_decodes, taken);
  if (num_decodes > 0) decode_seconds_ = std::min(decodes_.at(num_decodes), taken);
  if (num_prefill == 0) return;
  const double alone = num_decodes > 0 ? decode_seconds_ : 0;
  // A decode costs at least as much as a token of a prompt.
  const double even = taken * num_prefill / (num_prefill + num_decodes);
  const double own = std::max(std::min(taken - alone, even), taken * kLeastPart);
  recent_[num_prefills_++ % kNumRecent] = {own / num_prefill, num_prefill};
}

int32_t PrefillLimit::tokens() const {
  const size_t count = std::min(num_prefills_, kNumRecent);
  if (count == 0) return 0;
  std::array<double, kNumRecent> costs;
  int32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    costs[i] = recent_[i].token_seconds;
    largest = std::max(largest, recent_[i].num_tokens);
  }
  const auto quartile = costs.begin() + static_cast<ptrdiff_t>(count / 4);
  std::nth_element(costs.begin(), quartile, costs.begin() + static_cast<ptrdiff_t>(count),
                   std::greater());
  const double affordable = std::max(most_, decode_seconds_) / *quartile;
  return static_cast<int32_t>(std::min(affordable, 2.0 * largest));
}

void PrefillLimit::report(ExecutorStats& stats) const {
  stats.add_figure("prefill_limit", tokens());
}

}  // namespace nereid::runtime
