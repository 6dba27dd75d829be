#include "runtime/forced_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "kernels/open.h"

namespace nereid::runtime {
namespace {

std::string_view op_of(std::string_view choice) { return choice.substr(0, choice.find(':')); }

// An unknown op would be ignored silently.
Status check_op(const std::string& choice) {
  std::string known;
  bool found = false;
  const auto look_at = [&](std::string_view name) {
    found |= name == op_of(choice) && name.size() + 1 < choice.size();
    known += known.empty() ? "" : ", ";
    known += name;
  };
  // FusedLinear takes its kernels from the products that it replaces. That of CrossScores is
  // chosen when a plan is bound.
  [&]<class... Ops>(std::type_identity<std::tuple<Ops...>>) {
    const auto is_derived = []<class Op>(std::type_identity<Op>) {
      return std::is_same_v<Op, kernels::FusedLinear> || std::is_same_v<Op, kernels::CrossScores>;
    };
    ((is_derived(std::type_identity<Ops>()) ? void() : look_at(Ops::kName)), ...);
  }(std::type_identity<kernels::AllOps>{});
  if (found) return ok();
  return invalid_argument("forced_kernels: '{}' is not 'op:kernel' with op one of {}", choice,
                          known);
}

}  // namespace

StatusOr<std::vector<std::string>> forced_kernels_of(const ExecutorConfig& config,
                                                     const kernels::Registry& registry,
                                                     const DeviceInfo& device) {
  std::vector<std::string> forced = config.forced_kernels;
  for (const std::string& choice : forced) RETURN_IF_ERROR(check_op(choice));
  if (!config.deterministic) return forced;
  for (const std::string& invariant : kernels::invariant_kernels(registry, device.kind)) {
    for (const std::string& choice : config.forced_kernels)
      if (op_of(choice) == op_of(invariant) && choice != invariant)
        return invalid_argument("deterministic: forced_kernels has '{}', allowed is '{}'", choice,
                                invariant);
    forced.push_back(invariant);
  }
  return forced;
}

}  // namespace nereid::runtime
