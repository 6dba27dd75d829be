// The gRPC half of replay_server.
#pragma once

#include "loopback.h"

namespace nereid::bench {

// Until the client closes: the first reply to a ModelInfer is sent again for each of them, other
// unary rpcs are passed on to the real server.
void replay_grpc(Socket client, int real_port, Duration spin);

}  // namespace nereid::bench
