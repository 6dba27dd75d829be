// TLS between hosts behind plain sockets.
#pragma once

#include "base/clock.h"
#include "base/status.h"
#include "comm/shared_memory.h"
#include "runtime/ranks/hosts/host_socket.h"

namespace nereid::runtime {

// Makes TLS of a connected socket. The result is a stream socket with the plain bytes; a thread
// carries them until either side closes. Unauthenticated: the other side's certificate;
// Unavailable; DeadlineExceeded. InvalidArgument: a file of `tls`.
StatusOr<comm::Descriptor> make_tls_socket(comm::Descriptor socket, const HostTls& tls,
                                           bool is_server, Time deadline);

}  // namespace nereid::runtime
