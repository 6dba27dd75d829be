// A group of ranks that exchange through sockets, one for each pair: ranks of several hosts.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "comm/shared_memory.h"

namespace nereid::comm {

// The endpoint of one rank, for streams of CPU devices. peers [size]: connected stream sockets to
// the other ranks, by rank; that of `rank` is none. Every rank adds up all parts itself, in the
// order of Communicator, so its sums have the bits of the other groups. A rank waits for another
// one without a limit: who sees it die or hang calls abort(). A socket that the other side closes
// ends the group with Unavailable. InvalidArgument: `rank`, or the set of sockets.
StatusOr<std::unique_ptr<Communicator>> attach_socket_group(int rank,
                                                            std::vector<Descriptor> peers);

}  // namespace nereid::comm
