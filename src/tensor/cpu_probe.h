// Resources available to this process: instruction sets, cores, memory.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"
#include "tensor/device.h"

namespace nereid {

// Instruction sets supported by processor and operating system (cpuid, xgetbv; AMX also arch_prctl,
// called here), ascending from kGeneric; each includes the previous ones.
std::vector<Isa> usable_isas();

// Whether an AVX-512 machine has the VNNI byte products.
bool has_avx512_vnni();

// The named instruction set, "" = the best usable one; InvalidArgument with the usable ones.
StatusOr<Isa> choose_isa(std::string_view name);

// Physical cores in the affinity mask, at most the cgroup quota, at least 1.
int num_usable_cores();

// Marketing name of the processor, or "unknown".
std::string processor_name();

struct HostMemory {
  size_t total_bytes = 0;
  size_t free_bytes = 0;  // available without swapping
};
// /proc/meminfo, bounded by cgroup limits (v1 and v2), which are read at most once a second.
HostMemory host_memory();

}  // namespace nereid
