// Whether a limit of the process's address space leaves room to serve.
#pragma once

#include <cstddef>
#include <optional>

#include "base/status.h"

namespace nereid::cli {

// Bytes of address space.
struct AddressSpace {
  std::optional<size_t> limit;  // RLIMIT_AS (prlimit --as, ulimit -v); none: unlimited
  size_t used = 0;
};
AddressSpace address_space();

// What requests take beside what is loaded: threads map memory in pieces of 32 MiB when they first
// need any, two for each event loop and four times 64 MiB for the rest of the process.
size_t address_space_to_serve(int num_event_loops);

// ResourceExhausted with the limit, what is left of it and what it should be. Call it when
// everything is loaded: once requests run, a thread of a library that finds no memory at all can
// only end the process.
Status check_address_space(const AddressSpace& space, int num_event_loops);

}  // namespace nereid::cli
