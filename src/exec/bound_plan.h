// A plan bound to one device's memory and kernels; executes the calls of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "base/status.h"
#include "exec/adapter_pool.h"
#include "exec/exchange.h"
#include "exec/expert_counter.h"
#include "exec/kv_cache.h"
#include "exec/profile.h"
#include "exec/runner.h"
#include "exec/step_data.h"
#include "io/plan.h"
#include "kernels/api/registry.h"
#include "tensor/device.h"

namespace nereid::exec {

// Device memory of a plan's operands, of the sizes in memory.h, and the rank's exchange.
struct DeviceMemory {
  const std::byte* weights = nullptr;
  std::byte* arenas[io::kNumExtents] = {};
  const KvCache* kv_cache = nullptr;
  const KvCache* cross_cache = nullptr;  // null: no call of cross attention
  const float* rope_table = nullptr;
  const int32_t* rope_components = nullptr;  // of all tables that have them, end to end
  const int32_t* slot_tokens = nullptr;
  const AdapterPool* adapters = nullptr;
  int32_t first_adapter_module = 0;  // of the plan's among the pool's
  std::byte* fused = nullptr;        // null: no call is a FusedLinear
  Exchange* exchange = nullptr;      // null: no call is an exchange op
};

class BoundPlan {
 public:
  // Preconditions: `plan` passed io::check_plan(), `limits` check_limits(). InvalidArgument: a
  // kernel named in the plan is unknown or cannot run its problem on the device.
  static StatusOr<BoundPlan> bind(const io::Plan& plan, const RunnerLimits& limits,
                                  const DeviceInfo& device, const kernels::Registry& registry,
                                  const DeviceMemory& memory);

  // Issues all calls of a step whose arrays are in device memory; errors name the call. Profile:
  // waits for each call and adds its time. Observer: waits before each observed call. Steps of few
  // rows run fused calls (fused_calls.h) unless observed.
  // `experts`: counts what routers choose, on devices that run work synchronously.
  // `windows`: the step's tokens in other rows, for attention in windows.
  Status run(const StepData& step, Stream& stream, Profile* profile,
             const ProductObserver& observer = {}, const StepData* windows = nullptr,
             ExpertCounter* experts = nullptr) const;

  // f32 [num_rows, vocab], valid after run() until the next. Only of the last stage.
  View logits(int64_t num_rows) const;
  // The plan's hidden states, bf16 [sampled rows, hidden_size]; valid as logits().
  std::span<const View> hidden() const { return hidden_; }

  // Report lines, indexed by Bound::profile_entry.
  const std::vector<ProfileEntry>& profile_entries() const { return profile_entries_; }

 private:
  template <class Op>
  struct Bound {
    Status (*run)(const Op&, Stream&) = nullptr;  // null: an exchange op
    Op op;                                        // without rows and the step's arrays
    io::RowCount extent = io::RowCount::kTokens;
    int32_t cache_group = 0;  // of an op with a cache; of cross attention its layer
    int32_t profile_entry = 0;
    size_t index = 0;  // call index in the plan
  };
  template <class Variant>
  struct AnyOf;
  template <class... Ops>
  struct AnyOf<std::variant<Ops...>> {
    using type = std::variant<Bound<Ops>..., Bound<kernels::FusedLinear>>;
  };
  using Calls = std::vector<AnyOf<kernels::PlanOpIn<kernels::Views>>::type>;
  class Binder;

  Status run_scores(const kernels::CrossAttention& call, int32_t layer, const StepData& step,
                    Stream& stream) const;

  Calls calls_;
  Status (*scores_)(const kernels::CrossScores&, Stream&) = nullptr;  // null: no cross attention
  std::vector<std::string> products_;  // weight name of each observable call
  // Fused call lists: entry i for steps with max(tokens, logits) = i + 1. Null: calls_.
  std::vector<std::shared_ptr<const Calls>> few_;
  const int32_t* slot_tokens_ = nullptr;
  const AdapterPool* adapters_ = nullptr;
  int32_t first_adapter_module_ = 0;
  Exchange* exchange_ = nullptr;
  std::vector<ProfileEntry> profile_entries_;
  View logits_;
  std::vector<View> hidden_;
};

}  // namespace nereid::exec
