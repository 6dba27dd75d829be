#include "exec/expert_counter.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <variant>

namespace nereid::exec {
namespace {

// N of the first weight "layers.N. ..." that a call from `first` on reads; -1: none.
int32_t layer_behind(const io::Plan& plan, size_t first) {
  constexpr std::string_view kPrefix = "layers.";
  for (size_t i = first; i < plan.calls.size(); ++i) {
    const auto* const product = std::get_if<kernels::ids::ExpertLinear>(&plan.calls[i].op);
    if (!product) continue;
    const std::string& name = plan.weights[static_cast<size_t>(product->weight)].name;
    const size_t at = name.find(kPrefix);
    int32_t layer = -1;
    if (at != name.npos)
      std::from_chars(name.data() + at + kPrefix.size(), name.data() + name.size(), layer);
    return layer;
  }
  return -1;
}

}  // namespace

ExpertCounter::ExpertCounter(const io::Plan& plan) {
  for (size_t i = 0; i < plan.calls.size(); ++i) {
    const auto* const route = std::get_if<kernels::ids::Route>(&plan.calls[i].op);
    if (!route) continue;
    const auto count = static_cast<size_t>(plan.values[static_cast<size_t>(route->x)].cols);
    mixtures_.push_back({.call = i,
                         .layer = layer_behind(plan, i),
                         .num_experts = count,
                         .tokens = std::make_unique<std::atomic<int64_t>[]>(count)});
  }
}

void ExpertCounter::add(size_t call, const View& experts) {
  const auto mixture = std::ranges::lower_bound(mixtures_, call, {}, &Mixture::call);
  for (int64_t row = 0; row < experts.rows; ++row)
    for (int64_t j = 0; j < experts.cols; ++j) {
      const auto expert = static_cast<size_t>(experts.row<int32_t>(row)[j]);
      if (expert >= mixture->num_experts) continue;
      mixture->tokens[expert].fetch_add(1, std::memory_order_relaxed);
    }
}

std::vector<ExpertLoad> ExpertCounter::load() const {
  std::vector<ExpertLoad> all;
  for (const Mixture& mixture : mixtures_) {
    ExpertLoad& load = all.emplace_back();
    load.layer = mixture.layer;
    for (size_t e = 0; e < mixture.num_experts; ++e)
      load.tokens.push_back(mixture.tokens[e].load(std::memory_order_relaxed));
  }
  return all;
}

}  // namespace nereid::exec
