// Ranks that are threads of one process and read each other's host memory.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "comm/communicator.h"

namespace nereid::comm {

inline constexpr int kMaxThreadRanks = 64;
inline constexpr Duration kMaxTimeLimit = std::chrono::hours(24);

// A communicator for each rank, of streams of CPU devices. Sums go over the ranks from 0 up, in f32
// (bf16 is rounded once, at the end). A rank that waits longer than `time_limit` for another ends
// the group with DeadlineExceeded. InvalidArgument: num_ranks outside [1, kMaxThreadRanks], a limit
// outside (0, kMaxTimeLimit].
StatusOr<std::vector<std::unique_ptr<Communicator>>> make_thread_group(int num_ranks,
                                                                       Duration time_limit);

}  // namespace nereid::comm
