// A plan tied to one device's memory and kernels: what a step walks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "base/status.h"
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
  std::byte* kv_cache = nullptr;  // laid out by KvLayout
  const float* rope_table = nullptr;
  const int32_t* slot_tokens = nullptr;
};

class BoundPlan {
 public:
  // `plan` has passed io::check_plan(), `limits` check_limits(). InvalidArgument when a kernel that
  // the plan names is unknown or cannot run its problem on the device.
  static StatusOr<BoundPlan> bind(const io::Plan& plan, const RunnerLimits& limits,
                                  const DeviceInfo& device, const kernels::Registry& registry,
                                  const DeviceMemory& memory);

  // Issues every call for a step whose arrays are in device memory. With a profile, waits for each
  // call and adds its time. Errors name the call.
  Status run(const StepData& step, Stream& stream, Profile* profile) const;

  // f32 [num_rows, vocab], valid after run() until the next.
  View logits(int64_t num_rows) const;

  // What profile entries stand for, by Bound::profile_entry.
  const std::vector<ProfileEntry>& profile_entries() const { return profile_entries_; }

 private:
  template <class Op>
  struct Bound {
    using Operation = Op;
    Status (*run)(const typename Op::Args&, Stream&) = nullptr;
    typename Op::Args args;  // all but what changes from step to step
    io::Extent extent = io::Extent::kTokens;
    int32_t profile_entry = 0;
  };
  using AnyBound =
      std::variant<Bound<kernels::Embed>, Bound<kernels::Norm>, Bound<kernels::Linear>,
                   Bound<kernels::Rope>, Bound<kernels::Attention>, Bound<kernels::Glu>,
                   Bound<kernels::Add>, Bound<kernels::GatherRows>>;
  class Binder;

  std::vector<AnyBound> calls_;
  std::vector<ProfileEntry> profile_entries_;
  View logits_;
};

}  // namespace nereid::exec
