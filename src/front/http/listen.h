// Opening of a port, for HTTP and gRPC.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace nereid::front {

// Opens `socket` on an address or a name that resolves to one, or takes over the socket on that
// port that systemd opened for this process (socket activation). `reuse_port`: other processes may
// listen there too. InvalidArgument: the host has no address, or systemd's
// socket is on another one; Unavailable: the port is in use or not allowed.
Status listen_on(boost::asio::ip::tcp::acceptor& socket, const std::string& host, int port,
                 bool reuse_port);

// Whether only this machine can reach a port on the host. False for a name that does not resolve.
bool is_loopback_host(const std::string& host);

// The tenant of an address: of IPv6 the first half counts.
uint64_t tenant_of(const boost::asio::ip::address& address);

// Who is at the other end of a connection.
struct Peer {
  bool is_on_loopback = false;  // it comes from this machine
  uint64_t tenant = 0;          // tenant_of its address
};
Peer peer_of(const boost::asio::ip::tcp::socket& socket);

}  // namespace nereid::front
