// What the launchers share. A launcher validates the arguments, cuts the work and hands pointers to
// raw kernels; the op's rows, table<Op>(), stand below it.
#pragma once

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/raw.h"
#include "tensor/device.h"
#include "tensor/thread_pool.h"

namespace nereid::kernels::cpu {

// What a row runs: a launcher, with the raw kernels of an instruction set or none.
template <class Op, auto kLaunch, const Raw&... kRaw>
Status run(const Op& args, Stream& stream) {
  return kLaunch(kRaw..., args, *static_cast<ThreadPool*>(stream.native()));
}

// The row of a launcher that is the same on every instruction set.
template <class Op, auto kLaunch>
Table<Op> generic() {
  return {{"generic", DeviceKind::kCpu, [](const Op&, const DeviceInfo&) { return true; },
           rank<Op, 1>, run<Op, kLaunch>}};
}

// Rows with scales are made by `quantize` alone.
template <class Op>
bool makes_floats(const Op& op) {
  if constexpr (requires { op.scales; }) return !is_given(op.scales);
  return true;
}
// The rows of a launcher of raw kernels that the vector sources have.
template <class Op, auto kLaunch, bool (*kTakes)(const Op&) = makes_floats<Op>>
Table<Op> vectors() {
  return {{"avx512", DeviceKind::kCpu,
           [](const Op& op, const DeviceInfo& d) { return d.has_avx512 && kTakes(op); },
           rank<Op, 1>, run<Op, kLaunch, kAvx512>},
          {"avx2", DeviceKind::kCpu,
           [](const Op& op, const DeviceInfo& d) { return d.has_avx2 && kTakes(op); }, rank<Op, 2>,
           run<Op, kLaunch, kAvx2>}};
}

// Whether vdpbf16ps is quicker here than products of f32.
bool pairs_are_fast();

// Whether the weight of a product is one that the vector kernels read.
template <class Op>
bool has_panels(const Op& op) {
  return op.weight.layout == WeightLayout::kPanel16 && !op.weight.format.ordered;
}

}  // namespace nereid::kernels::cpu
