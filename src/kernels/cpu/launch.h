// Common parts of launchers, which validate arguments, divide the work and call raw kernels; each
// source ends with the op's table<Op>().
#pragma once

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/raw.h"
#include "tensor/device.h"
#include "tensor/thread_pool.h"

namespace nereid::kernels::cpu {

// Run function of a row: a launcher with the raw kernels of an instruction set, or none.
template <class Op, auto kLaunch, const Raw&... kRaw>
Status run(const Op& args, Stream& stream) {
  return kLaunch(kRaw..., args, *static_cast<ThreadPool*>(stream.native()));
}

// Row of a launcher that is equal for all instruction sets.
template <class Op, auto kLaunch>
Table<Op> generic() {
  return {{"generic", DeviceKind::kCpu, [](const Op&, const DeviceInfo&) { return true; },
           rank<Op, 1>, run<Op, kLaunch>}};
}

// Scaled rows are written by `quantize` only.
template <class Op>
bool makes_floats(const Op& op) {
  if constexpr (requires { op.scales; }) return !is_given(op.scales);
  return true;
}
// Rows of a launcher with raw vector kernels.
template <class Op, auto kLaunch, bool (*kTakes)(const Op&) = makes_floats<Op>>
Table<Op> vectors() {
  return {{"avx512", DeviceKind::kCpu,
           [](const Op& op, const DeviceInfo& d) { return d.has_avx512 && kTakes(op); },
           rank<Op, 1>, run<Op, kLaunch, kAvx512>},
          {"avx2", DeviceKind::kCpu,
           [](const Op& op, const DeviceInfo& d) { return d.has_avx2 && kTakes(op); }, rank<Op, 2>,
           run<Op, kLaunch, kAvx2>}};
}

// Whether vdpbf16ps is faster than f32 products on this processor.
bool pairs_are_fast();

// Whether vector kernels can read a product's weight.
template <class Op>
bool has_panels(const Op& op) {
  if constexpr (std::is_same_v<Op, ExpertLinear>)
    if (op.gated) return false;
  return op.weight.layout == WeightLayout::kPanel16 && !op.weight.format.ordered &&
         op.weight.format.scheme != Scheme::kFloat4;
}

}  // namespace nereid::kernels::cpu
