// Ranks as threads of one process.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "comm/shared_group.h"

namespace nereid::comm {

// A communicator per rank of a new group, for CPU streams. Errors: as create_shared_group().
StatusOr<std::vector<std::unique_ptr<Communicator>>> make_thread_group(int num_ranks,
                                                                       Duration time_limit);

}  // namespace nereid::comm
