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
#include "nereid/executor.h"
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

  // The hook for a step with these rows, and the area that its results go to.
  struct Prepared {
    exec::PostForward hook;
    int32_t area = 0;
  };
  // Parameters are staged now, in one of two areas by turns: a hook must have run before the next
  // but one is made.
  Prepared prepare(std::span<const sched::Row> rows);

  // What the hook of an area drew, one id per sampling row, once its step has been waited for; -1:
  // the logits were not finite.
  std::span<const TokenId> results(int32_t area) const;

 private:
  using Kernel = kernels::Kernel<kernels::Sample>;

  // One block: SampleRow[max_rows], then int32 banned ids; copied to the device in one piece.
  struct Staging {
    Buffer host, device;
    Buffer drawn, drawn_host;  // int32 [max_rows]
    int32_t num_drawn = 0;
  };

  Sampler() = default;

  int32_t max_rows_ = 0;
  int64_t vocab_size_ = 0;
  const Kernel* greedy_ = nullptr;  // for steps in which every row takes the argmax
  const Kernel* general_ = nullptr;
  std::array<Staging, 2> staging_;
  int32_t turn_ = 0;
};

}  // namespace nereid::runtime
