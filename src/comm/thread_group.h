// Ranks as threads of one process that read each other's host memory.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "comm/communicator.h"

namespace nereid::comm {

inline constexpr int kMaxThreadRanks = 64;
inline constexpr Duration kMaxTimeLimit = std::chrono::hours(24);

// A communicator per rank, for streams of CPU devices. Sums in order of ranks, in f32 (bf16 is
// rounded once, at the end). Waiting longer than `time_limit` ends the group with DeadlineExceeded.
// InvalidArgument: num_ranks outside [1, kMaxThreadRanks], time_limit outside (0, kMaxTimeLimit].
StatusOr<std::vector<std::unique_ptr<Communicator>>> make_thread_group(int num_ranks,
                                                                       Duration time_limit);

}  // namespace nereid::comm
