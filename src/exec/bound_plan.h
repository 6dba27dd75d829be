// A plan tied to one device's memory and kernels: what a step walks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "base/status.h"
#include "exec/adapter_pool.h"
#include "exec/kv_cache.h"
#include "exec/profile.h"
#include "exec/runner.h"
#include "exec/step_data.h"
#include "io/plan.h"
#include "kernels/api/registry.h"
#include "tensor/device.h"

namespace nereid::exec {

// Where the operands of a plan live; all device memory, sized as memory.h says.
struct DeviceMemory {
  const std::byte* weights = nullptr;
  std::byte* arenas[io::kNumExtents] = {};
  const KvCache* kv_cache = nullptr;
  const float* rope_table = nullptr;
  const int32_t* slot_tokens = nullptr;
  const AdapterPool* adapters = nullptr;
  std::byte* fused = nullptr;  // null: no call is a FusedLinear
};

class BoundPlan {
 public:
  // `plan` has passed io::check_plan(), `limits` check_limits(). InvalidArgument when a kernel that
  // the plan names is unknown or cannot run its problem on the device.
  static StatusOr<BoundPlan> bind(const io::Plan& plan, const RunnerLimits& limits,
                                  const DeviceInfo& device, const kernels::Registry& registry,
                                  const DeviceMemory& memory);

  // Issues every call for a step whose arrays are in device memory. With a profile, waits for each
  // call and adds its time; with an observer, waits before each call that it sees. Errors name the
  // call. A step of few tokens runs the calls that take the place of the plan's (fused_calls.h),
  // unless an observer wants to see those.
  Status run(const StepData& step, Stream& stream, Profile* profile,
             const ProductObserver& observer = {}) const;

  // f32 [num_rows, vocab], valid after run() until the next.
  View logits(int64_t num_rows) const;
  // Each of the plan's hidden states, bf16 [sampled rows, hidden_size]; valid as logits().
  std::span<const View> hidden() const { return hidden_; }

  // What profile entries stand for, by Bound::profile_entry.
  const std::vector<ProfileEntry>& profile_entries() const { return profile_entries_; }

 private:
  template <class Op>
  struct Bound {
    Status (*run)(const Op&, Stream&) = nullptr;
    Op op;  // all but rows and the step's arrays
    io::Extent extent = io::Extent::kTokens;
    int32_t cache_group = 0;  // of an op that has a cache
    int32_t profile_entry = 0;
    size_t index = 0;  // in the plan
  };
  template <class Variant>
  struct AnyOf;
  template <class... Ops>
  struct AnyOf<std::variant<Ops...>> {
    using type = std::variant<Bound<Ops>..., Bound<kernels::FusedLinear>>;
  };
  using Calls = std::vector<AnyOf<kernels::OpIn<kernels::Views>>::type>;
  class Binder;

  Calls calls_;
  std::vector<std::string> products_;  // of each call the weight, where observers see it
  // Calls in the place of calls_ in steps of few rows: by the larger number of tokens and logits,
  // less 1. Null: calls_.
  std::vector<std::shared_ptr<const Calls>> few_;
  const int32_t* slot_tokens_ = nullptr;
  const AdapterPool* adapters_ = nullptr;
  std::vector<ProfileEntry> profile_entries_;
  View logits_;
  std::vector<View> hidden_;
};

}  // namespace nereid::exec
