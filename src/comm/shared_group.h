// A group of ranks on one host, threads or processes, that exchange through a shared segment.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "comm/link.h"
#include "comm/shared_memory.h"

namespace nereid::comm {

inline constexpr Duration kMaxTimeLimit = std::chrono::hours(24);

// A segment for a new group of `num_ranks` ranks. Waiting longer than `time_limit` for another rank
// ends the group with DeadlineExceeded; time in which the waiting process was suspended does not
// count. InvalidArgument: num_ranks outside [1, kMaxHostRanks], time_limit outside (0,
// kMaxTimeLimit]. ResourceExhausted: memory.
StatusOr<Descriptor> create_shared_group(int num_ranks, Duration time_limit);

// The endpoint of one rank, for streams of CPU devices; each rank is attached once. `segment` may
// be closed afterwards. Unavailable: the segment cannot be mapped. DataLoss: it is none of
// create_shared_group() of this program. InvalidArgument: `rank` is not in [0, size) or attached.
StatusOr<std::unique_ptr<Communicator>> attach_shared_group(const Descriptor& segment, int rank);
// Attaches a rank to a segment that ranks of one process share.
StatusOr<std::unique_ptr<Communicator>> attach_shared_group(std::shared_ptr<SharedMemory> segment,
                                                            int rank);

// Ends the group for all ranks, by a process that is none of them. The first reason counts; not OK.
// Errors: those of attach_shared_group().
Status abort_shared_group(const Descriptor& segment, const Status& reason);

}  // namespace nereid::comm
