// Draws the next token of every sampling row, on the device, right after the forward pass.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "base/status.h"
#include "exec/runner.h"
#include "kernels/api/kernel.h"
#include "kernels/api/ops.h"
#include "kernels/api/registry.h"
#include "sched/step_plan.h"

namespace nereid::runtime {

// Most ids that one request may have banned (see sched::Sequence::banned_ids).
inline constexpr int32_t kMaxBannedIds = 256;

// A row's token depends only on its logits, parameters, seed and position: not on batch, slot or
// overlap. Owned by the engine thread.
class Sampler {
 public:
  // `max_rows`: sampling rows per step. `device` and `registry` must outlive the sampler and every
  // hook it made.
  static StatusOr<std::unique_ptr<Sampler>> create(Device& device,
                                                   const kernels::Registry& registry,
                                                   const kernels::Choices& forced, int32_t max_rows,
                                                   int32_t vocab_size);

  // The hook for a step with these rows. Parameters are staged now, in one of two areas by turns: a
  // hook must have run before the next but one is made.
  exec::PostForward prepare(std::span<const sched::Row> rows);

 private:
  using Kernel = kernels::Kernel<kernels::Sample>;

  // One block: SampleRow[max_rows], then int32 banned ids; copied to the device in one piece.
  struct Staging {
    Buffer host, device;
  };

  Sampler() = default;

  int32_t max_rows_ = 0;
  int64_t vocab_size_ = 0;
  const Kernel* greedy_ = nullptr;  // for steps in which every row takes the argmax
  const Kernel* general_ = nullptr;
  std::array<Staging, 2> staging_;
  int turn_ = 0;
};

}  // namespace nereid::runtime
