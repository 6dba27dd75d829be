#include "cli/process/address_space.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace nereid::cli {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kPiece = 32 * kMiB;  // mimalloc's mapping for a thread

}  // namespace

AddressSpace address_space() {
  AddressSpace space;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    space.limit = limit.rlim_cur;
  }
  size_t pages = 0;  // proc(5): the first number is the size of the address space
  if (std::ifstream("/proc/self/statm") >> pages) {
    space.used = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  }
  return space;
}

size_t address_space_to_serve(int num_event_loops) {
  return 256 * kMiB + 2 * kPiece * static_cast<size_t>(num_event_loops);
}

Status check_address_space(const AddressSpace& space, int num_event_loops) {
  if (!space.limit) return ok();
  const size_t needed = address_space_to_serve(num_event_loops);
  if (*space.limit >= space.used && *space.limit - space.used >= needed) return ok();
  return resource_exhausted(
      "the limit of the address space (prlimit --as, ulimit -v) of {} MiB is too small: {} MiB are "
      "used when everything is loaded and {} more are needed to serve; allow {} MiB or more",
      *space.limit / kMiB, space.used / kMiB, needed / kMiB, (space.used + needed) / kMiB + 1);
}

}  // namespace nereid::cli
