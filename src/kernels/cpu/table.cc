// The CPU rows of every op's table, best first.
#include <algorithm>

#include "base/clock.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/launch.h"

namespace nereid::kernels::cpu {
namespace {

constexpr DeviceKind kCpu = DeviceKind::kCpu;

ThreadPool& pool_of(Stream& stream) { return *static_cast<ThreadPool*>(stream.native()); }

template <class Op>
bool any(const Op&, const DeviceInfo&) {
  return true;
}
template <class Op>
bool float_table(const Op& op, const DeviceInfo&) {
  return op.table.format.is_float();
}
// Rows of f8e4m3 are made by `quantize` alone.
template <class Op>
bool makes_f8(const Op& op) {
  if constexpr (requires { op.scales; }) return is_given(op.scales);
  return false;
}
template <class Op>
bool has_avx2(const Op& op, const DeviceInfo& d) {
  return d.has_avx2 && !makes_f8(op);
}
template <class Op>
bool has_avx512(const Op& op, const DeviceInfo& d) {
  return d.has_avx512 && !makes_f8(op);
}

// Seconds do not matter where the wider vectors always win; the order does.
template <class Op>
double first(const Op&, const DeviceInfo&) {
  return 1;
}
template <class Op>
double second(const Op&, const DeviceInfo&) {
  return 2;
}

template <class Op, auto kLaunch, const Raw& kRaw>
Status run(const Op& args, Stream& stream) {
  return kLaunch(kRaw, args, pool_of(stream));
}
template <class Op, auto kLaunch>
Status run(const Op& args, Stream& stream) {
  return kLaunch(args, pool_of(stream));
}

bool fits(const Attention& p) {
  return p.cache.layout == KeyLayout::kPanels && p.heads.dim <= kMaxHeadDim;
}

// Linear, ExpertLinear and HeadLinear.
template <class Op>
bool panels(const Op& p) {
  return p.weight.layout == WeightLayout::kPanel16 && !p.weight.format.ordered;
}

Status launch_product(const LinearKernel& kernel, const Linear& args, ThreadPool& pool) {
  return launch_linear(kernel, args, pool);
}
Status launch_product(const LinearKernel& kernel, const ExpertLinear& args, ThreadPool& pool) {
  return launch_expert_linear(kernel, args, pool);
}
template <class Op>
Status linear_f32(const Raw& raw, const Op& args, ThreadPool& pool) {
  return launch_product({.block = raw.linear,
                         .form = RowForm::kF32,
                         .widen_row = raw.widen_row,
                         .unpack_panel = raw.unpack_panel},
                        args, pool);
}
template <class Op>
Status linear_pairs(const Op& args, ThreadPool& pool) {
  return launch_product({.block = linear_avx512_bf16, .unpack_panel = kAvx512.unpack_panel}, args,
                        pool);
}
template <class Op>
Status linear_tiles(const Op& args, ThreadPool& pool) {
  return launch_product({.block = linear_amx,
                         .form = RowForm::kTiles,
                         .row_unit = 32,
                         .row_block_bytes = 1 << 20,
                         .unpack_panel = kAvx512.unpack_panel},
                        args, pool);
}

double best_rate(double (*peak)(int64_t)) {
  constexpr int64_t kIterations = 2000;
  double best = 0;
  for (int i = 0; i < 7; ++i) {
    const Time start = now();
    const double flops = peak(kIterations);
    best = std::max(best, flops / seconds(now() - start));
  }
  return best;
}

// vdpbf16ps runs at twice the rate of f32 FMA on some processors and at half of it on others, by
// design, so a short measurement always gives the same answer.
bool pairs_are_fast() {
  static const bool fast = best_rate(peak_flops_avx512_bf16) > best_rate(kAvx512.peak_flops);
  return fast;
}

// Ranks of linear, nominal seconds for a multiply-add. They must not depend on the number of rows:
// kernels differ in their order of summation, and a row's result may not depend on its neighbours.
template <class Op>
double multiply_adds(const Op& p) {
  return static_cast<double>(p.weight.n) * static_cast<double>(p.weight.k);
}
template <class Op>
double tiles_cost(const Op& p, const DeviceInfo&) {
  return multiply_adds(p) * 1e-12;
}
template <class Op>
double f32_cost(const Op& p, const DeviceInfo&) {
  return multiply_adds(p) * 1e-11;
}
template <class Op>
double pairs_cost(const Op& p, const DeviceInfo&) {
  return multiply_adds(p) * (pairs_are_fast() ? 0.5e-11 : 2e-11);
}
template <class Op>
double avx2_cost(const Op& p, const DeviceInfo&) {
  return multiply_adds(p) * 3e-11;
}

template <class Op>
void add_products(Registry& registry) {
  registry.add<Op>({
      {"amx_bf16", kCpu, [](const Op& p, const DeviceInfo& d) { return d.has_amx && panels(p); },
       tiles_cost<Op>, run<Op, linear_tiles<Op>>},
      {"avx512_bf16", kCpu,
       [](const Op& p, const DeviceInfo& d) { return d.has_avx512_bf16 && panels(p); },
       pairs_cost<Op>, run<Op, linear_pairs<Op>>},
      {"avx512", kCpu, [](const Op& p, const DeviceInfo& d) { return d.has_avx512 && panels(p); },
       f32_cost<Op>, run<Op, linear_f32<Op>, kAvx512>},
      {"avx2", kCpu, [](const Op& p, const DeviceInfo& d) { return d.has_avx2 && panels(p); },
       avx2_cost<Op>, run<Op, linear_f32<Op>, kAvx2>},
  });
}

// The two vector forms of an op that takes every problem.
template <class Op, auto kLaunch>
void add_vectors(Registry& registry) {
  registry.add<Op>({
      {"avx512", kCpu, has_avx512<Op>, first<Op>, run<Op, kLaunch, kAvx512>},
      {"avx2", kCpu, has_avx2<Op>, second<Op>, run<Op, kLaunch, kAvx2>},
  });
}

}  // namespace

void add_kernels(Registry& registry) {
  registry.add<Embed>(
      {{"generic", kCpu, float_table<Embed>, first<Embed>, run<Embed, launch_embed>}});
  registry.add<AddPositions>({{"generic", kCpu, float_table<AddPositions>, first<AddPositions>,
                               run<AddPositions, launch_add_positions>}});
  registry.add<GatherRows>(
      {{"generic", kCpu, any<GatherRows>, first<GatherRows>, run<GatherRows, launch_gather_rows>}});
  registry.add<Quantize>(
      {{"generic", kCpu, any<Quantize>, first<Quantize>, run<Quantize, launch_quantize>}});
  registry.add<Route>({{"generic", kCpu, any<Route>, first<Route>, run<Route, launch_route>}});
  registry.add<WeightedSum>({{"generic", kCpu, any<WeightedSum>, first<WeightedSum>,
                              run<WeightedSum, launch_weighted_sum>}});
  add_products<Linear>(registry);
  add_products<ExpertLinear>(registry);
  registry.add<HeadLinear>({
      {"avx512", kCpu,
       [](const HeadLinear& p, const DeviceInfo& d) { return d.has_avx512 && panels(p); },
       f32_cost<HeadLinear>, run<HeadLinear, launch_head_linear, kAvx512>},
      {"avx2", kCpu,
       [](const HeadLinear& p, const DeviceInfo& d) { return d.has_avx2 && panels(p); },
       avx2_cost<HeadLinear>, run<HeadLinear, launch_head_linear, kAvx2>},
  });
  add_vectors<Norm, launch_norm>(registry);
  add_vectors<Rope, launch_rope>(registry);
  registry.add<Attention>({
      {"avx512", kCpu,
       [](const Attention& p, const DeviceInfo& d) { return d.has_avx512 && fits(p); },
       first<Attention>, run<Attention, launch_attention, kAvx512>},
      {"avx2", kCpu, [](const Attention& p, const DeviceInfo& d) { return d.has_avx2 && fits(p); },
       second<Attention>, run<Attention, launch_attention, kAvx2>},
  });
  add_vectors<Glu, launch_glu>(registry);
  add_vectors<Activate, launch_activate>(registry);
  add_vectors<SoftCap, launch_soft_cap>(registry);
  add_vectors<Add, launch_add>(registry);
  add_vectors<Sample, launch_sample>(registry);
}

}  // namespace nereid::kernels::cpu
