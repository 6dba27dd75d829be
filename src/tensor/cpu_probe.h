// What the processor and the system let this process use: instruction sets, cores, memory.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"
#include "tensor/device.h"

namespace nereid {

// Instruction sets that both the processor and the operating system support (cpuid, xgetbv; AMX
// also needs arch_prctl, which this call makes), worst first; always starts with kGeneric. Each
// includes the ones before it.
std::vector<Isa> usable_isas();

// Whether an AVX-512 machine has its products of bytes too.
bool has_avx512_vnni();

// The best usable one for "" or the named one; InvalidArgument listing the usable ones otherwise.
StatusOr<Isa> choose_isa(std::string_view name);

// Physical cores in this process's affinity mask, at most the processor quota of its control
// groups, at least 1.
int num_usable_cores();

// Marketing name of the processor, "unknown" when the system does not say.
std::string processor_name();

struct HostMemory {
  size_t total_bytes = 0;
  size_t free_bytes = 0;  // available without swapping
};
// /proc/meminfo, narrowed by the limits of this process's control groups (v1 and v2), which are
// looked up once a second at most.
HostMemory host_memory();

}  // namespace nereid
