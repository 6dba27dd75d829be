// Checked launchers: they validate the arguments, cut the work and hand pointers to raw kernels.
#pragma once

#include "kernels/api/ops.h"
#include "kernels/cpu/raw.h"
#include "tensor/device.h"
#include "tensor/thread_pool.h"

namespace nereid::kernels::cpu {

Status launch_norm(const Raw& raw, const Norm::Args& args, ThreadPool& pool);
Status launch_rope(const Raw& raw, const Rope::Args& args, ThreadPool& pool);
Status launch_glu(const Raw& raw, const Glu::Args& args, ThreadPool& pool);
Status launch_add(const Raw& raw, const Add::Args& args, ThreadPool& pool);
Status launch_attention(const Raw& raw, const Attention::Args& args, ThreadPool& pool);
Status launch_sample(const Raw& raw, const Sample::Args& args, ThreadPool& pool);

// Copies; the same on every instruction set.
Status launch_embed(const Embed::Args& args, ThreadPool& pool);
Status launch_gather_rows(const GatherRows::Args& args, ThreadPool& pool);

// How a linear kernel takes x.
struct LinearKernel {
  void (*block)(const LinearRaw&, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end) = nullptr;
  void (*widen_row)(const uint16_t*, int64_t, float*) = nullptr;  // set: x as f32
  int64_t k_step = 2;      // x must be readable, as zeros, up to a multiple of this
  bool many_rows = false;  // reads the same columns of 16 or more rows at a time
};
Status launch_linear(const LinearKernel& kernel, const Linear::Args& args, ThreadPool& pool);

}  // namespace nereid::kernels::cpu
