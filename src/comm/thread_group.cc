// A shared group whose ranks use one mapping.
#include "comm/thread_group.h"

#include <utility>

#include "comm/shared_memory.h"

namespace nereid::comm {

StatusOr<std::vector<std::unique_ptr<Communicator>>> make_thread_group(int num_ranks,
                                                                       Duration time_limit) {
  ASSIGN_OR_RETURN(const Descriptor file, create_shared_group(num_ranks, time_limit));
  ASSIGN_OR_RETURN(const auto segment, SharedMemory::map(file));
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    ASSIGN_OR_RETURN(ranks.emplace_back(), attach_shared_group(segment, rank));
  }
  return ranks;
}

}  // namespace nereid::comm
