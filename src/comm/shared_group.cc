// Groups of ranks over a shared segment.
#include "comm/shared_group.h"

#include <utility>

#include "comm/collectives.h"
#include "comm/group_state.h"

namespace nereid::comm {

StatusOr<Descriptor> create_shared_group(int num_ranks, Duration time_limit) {
  if (num_ranks < 1 || num_ranks > kMaxHostRanks)
    return invalid_argument("num_ranks: {} is not in [1, {}]", num_ranks, kMaxHostRanks);
  if (time_limit <= Duration::zero() || time_limit > kMaxTimeLimit)
    return invalid_argument("time_limit: {} s is not in (0, {}]", seconds(time_limit),
                            seconds(kMaxTimeLimit));
  ASSIGN_OR_RETURN(Descriptor file, SharedMemory::create(GroupState::segment_bytes(num_ranks)));
  ASSIGN_OR_RETURN(const auto memory, SharedMemory::map(file));
  GroupState::init(*memory, num_ranks, time_limit);
  return file;
}

StatusOr<std::unique_ptr<Communicator>> attach_shared_group(std::shared_ptr<SharedMemory> segment,
                                                            int rank) {
  ASSIGN_OR_RETURN(auto state, GroupState::attach(std::move(segment), rank));
  return make_communicator(std::move(state));
}

StatusOr<std::unique_ptr<Communicator>> attach_shared_group(const Descriptor& segment, int rank) {
  ASSIGN_OR_RETURN(auto memory, SharedMemory::map(segment));
  return attach_shared_group(std::move(memory), rank);
}

Status abort_shared_group(const Descriptor& segment, const Status& reason) {
  ASSIGN_OR_RETURN(const auto memory, SharedMemory::map(segment));
  return GroupState::fail_all(*memory, reason);
}

}  // namespace nereid::comm
