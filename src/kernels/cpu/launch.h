// Checked launchers: they validate the arguments, cut the work and hand pointers to raw kernels.
#pragma once

#include "kernels/api/ops.h"
#include "kernels/cpu/raw.h"
#include "tensor/device.h"
#include "tensor/thread_pool.h"

namespace nereid::kernels::cpu {

Status launch_norm(const Raw& raw, const Norm& args, ThreadPool& pool);
Status launch_rope(const Raw& raw, const Rope& args, ThreadPool& pool);
Status launch_glu(const Raw& raw, const Glu& args, ThreadPool& pool);
Status launch_activate(const Raw& raw, const Activate& args, ThreadPool& pool);
Status launch_soft_cap(const Raw& raw, const SoftCap& args, ThreadPool& pool);
Status launch_add(const Raw& raw, const Add& args, ThreadPool& pool);
Status launch_attention(const Raw& raw, const Attention& args, ThreadPool& pool);
Status launch_sample(const Raw& raw, const Sample& args, ThreadPool& pool);

// Copies; the same on every instruction set.
Status launch_embed(const Embed& args, ThreadPool& pool);
Status launch_add_positions(const AddPositions& args, ThreadPool& pool);
Status launch_gather_rows(const GatherRows& args, ThreadPool& pool);
Status launch_quantize(const Quantize& args, ThreadPool& pool);

// Plain loops: little work beside the products of experts.
Status launch_route(const Route& args, ThreadPool& pool);
Status launch_weighted_sum(const WeightedSum& args, ThreadPool& pool);

// How a linear kernel takes x.
enum class RowForm {
  kPairs,  // bf16 rows, readable (as a zero) up to even k: x itself where k is even
  kF32,    // f32 rows, likewise
  kTiles,  // see LinearRaw
};
struct LinearKernel {
  void (*block)(const LinearRaw&, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end) = nullptr;
  RowForm form = RowForm::kPairs;
  int64_t row_unit = 12;  // rows of its register tile; row blocks start at multiples of it
  int64_t row_block_bytes = 768 << 10;  // of x, to stay in the level-2 cache beside the weights
  void (*widen_row)(const uint16_t*, int64_t, float*) = nullptr;  // for kF32
  // For weights that are not bf16: their panels are multiplied after they were unpacked.
  void (*unpack_panel)(const IntegerPanelsRaw&, int64_t panel, uint16_t* out) = nullptr;
};
Status launch_linear(const LinearKernel& kernel, const Linear& args, ThreadPool& pool);
Status launch_expert_linear(const LinearKernel& kernel, const ExpertLinear& args, ThreadPool& pool);
Status launch_head_linear(const Raw& raw, const HeadLinear& args, ThreadPool& pool);

}  // namespace nereid::kernels::cpu
