// Kernels of products chosen by measurement, where the cost model that ranks them (choose_kernels)
// can be wrong about a processor, and the algorithms of a GPU's library of products.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "io/plan.h"
#include "kernels/api/registry.h"
#include "tensor/device.h"

namespace nereid::convert {

// Times every product (Linear) of the plan on `device`, a CPU, once for each shape, types and
// weight layout: the kernels that can run it, with graph::kTypicalRows rows. One that takes at most
// kWorthwhile of the time of the plan's kernel takes its place. The plan's target says afterwards
// that it was measured, and on which processor.
//
// The result differs between processors and, where two kernels are nearly as fast, between runs, so
// it is for engines that somebody builds, not for those that the cache makes by itself.
//
// `clock`: what the time is. Unimplemented: not a CPU; otherwise the first error of a kernel or of
// the device, ResourceExhausted where it lacks some ten MiB for the largest product.
inline constexpr double kWorthwhile = 0.9;
Status measure_kernels(io::Plan& plan, const kernels::Registry& registry, Device& device,
                       const std::function<Time()>& clock = now);

// Measures what registry.tuner chooses among for the plan's products of all of a step's tokens, not
// for the head, and keeps it in plan.choices, unless they have some. Where there is no tuner, or
// the device lacks the memory (which the log says), the plan stays as it is. Otherwise the device's
// first error.
Status measure_products(io::Plan& plan, const kernels::Registry& registry, Device& device);

// How many of them are not what the library would choose by itself.
size_t num_chosen(const kernels::ProductChoices& choices);

// The processor that a plan's kernels were measured on; empty when they were not.
std::string_view measured_on(const io::Plan& plan);
// The rest of its target: the instruction set, or SM, that they were chosen for.
std::string_view isa_of(const io::Plan& plan);

}  // namespace nereid::convert
