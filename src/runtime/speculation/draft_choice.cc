// DraftChooser: drafts in descending order of acceptance probability, as many as pay.
#include "runtime/speculation/draft_choice.h"

#include <algorithm>
#include <tuple>

namespace nereid::runtime {
namespace {

constexpr double kLeastChance = 0.02;  // drafts below it are not considered
constexpr double kWorth = 1.05;        // required gain of tokens per second

}  // namespace

Expectation DraftChooser::choose(const SpeculationCosts& costs, const NextStep& next,
                                 std::span<DraftCandidate> candidates) {
  order_.clear();
  int32_t deepest = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    double chance = 1;
    for (int32_t depth = 1; depth <= candidates[i].most; ++depth) {
      const std::span<const double> chances = candidates[i].chances;
      chance =
          chances.empty() ? chance * candidates[i].rate : chances[static_cast<size_t>(depth) - 1];
      if (chance < kLeastChance) break;
      order_.push_back({chance, depth, i});
      deepest = std::max(deepest, depth);
    }
  }
  std::ranges::sort(order_, {}, [](const Draft& draft) {
    return std::tuple(-draft.chance, draft.depth, draft.candidate);
  });
  const double host = costs.host.at(std::max(1, next.num_drawing));
  const Expectation plain{static_cast<double>(next.num_drawing),
                          costs.step.at(next.num_tokens) + (costs.overlaps ? 0 : host)};
  if (plain.seconds <= 0) return plain;
  Expectation best = plain, sum = plain;
  size_t num_best = 0;
  double least = kWorth * plain.rate(), drafting = 0;
  const bool is_first_apart = costs.first_draft.at(1) > 0;
  num_at_depth_.assign(static_cast<size_t>(deepest) + 1, 0);
  const size_t most = std::min(order_.size(), static_cast<size_t>(std::max(0, next.room)));
  for (size_t i = 0; i < most; ++i) {
    const int32_t num = num_at_depth_[static_cast<size_t>(order_[i].depth)]++;
    const bool is_first = is_first_apart && order_[i].depth == 1;
    const CostTable& table = is_first ? costs.first_draft : costs.draft;
    drafting += table.at(num + 1) - (num > 0 ? table.at(num) : 0);
    sum.tokens += order_[i].chance;
    sum.seconds = costs.step.at(next.num_tokens + static_cast<int32_t>(i) + 1) + host + drafting;
    if (sum.rate() <= least) continue;
    best = sum;
    least = sum.rate();
    num_best = i + 1;
  }
  for (const Draft& draft : std::span(order_).first(num_best)) ++candidates[draft.candidate].count;
  return best;
}

}  // namespace nereid::runtime
