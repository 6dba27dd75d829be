// A check that a limit of the process's address space leaves room for serving.
#pragma once

#include <cstddef>
#include <optional>

#include "base/status.h"

namespace nereid::cli {

// Bytes of address space.
struct AddressSpace {
  std::optional<size_t> limit;  // RLIMIT_AS (prlimit --as, ulimit -v); unset: unlimited
  size_t used = 0;
};
AddressSpace address_space();

// Address space for requests beyond what is loaded: mappings of 32 MiB at a thread's first
// allocation, two for each event loop, and four times 64 MiB for the rest of the process.
size_t address_space_to_serve(int num_event_loops);

// ResourceExhausted with the limit, the rest of it and the required size. To be called when
// everything is loaded: later, a library's thread that finds no memory can only end the process.
Status check_address_space(const AddressSpace& space, int num_event_loops);

}  // namespace nereid::cli
