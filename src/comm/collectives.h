// The collectives of ranks on CPUs, over any link.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/link.h"

namespace nereid::comm {

// The endpoint of the link's rank, for streams of CPU devices. Its end ends the group.
std::unique_ptr<Communicator> make_communicator(std::unique_ptr<Link> link);

}  // namespace nereid::comm
