// Kernel choice by measurement, where the cost model (choose_kernels) can be wrong about a
// processor; and algorithm choice in a GPU's product library.
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

// Times each distinct product (Linear) of the plan on `device`, a CPU, with graph::kTypicalRows
// rows: all kernels that can run it. A kernel with time <= kWorthwhile * the plan's kernel replaces
// it. Marks the plan's target as measured on this processor.
//
// Results depend on the processor and, for nearly equal kernels, on the run: for explicitly built
// engines, not for the cache.
//
// `clock`: time source. Unimplemented: not a CPU; else the first error of a kernel or the device,
// ResourceExhausted: some ten MiB for the largest product are missing.
inline constexpr double kWorthwhile = 0.9;
Status measure_kernels(io::Plan& plan, const kernels::Registry& registry, Device& device,
                       const std::function<Time()>& clock = now);

// Measures the choices of registry.tuner for the plan's products of all tokens (not the head) and
// stores them in plan.choices, unless set. Without a tuner or memory (logged) the plan is
// unchanged. Else the device's first error.
Status measure_products(io::Plan& plan, const kernels::Registry& registry, Device& device);

// Number of choices that differ from the library's first choice.
size_t num_chosen(const kernels::AlgorithmChoices& choices);

// Processor of a measured plan; empty: not measured.
std::string_view measured_on(const io::Plan& plan);
// The rest of its target: the instruction set or SM.
std::string_view isa_of(const io::Plan& plan);

}  // namespace nereid::convert
