#include "front/http/listen.h"

#include <sys/socket.h>

#include <boost/asio/io_context.hpp>

namespace nereid::front {
namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

StatusOr<tcp::endpoint> resolve(const tcp::acceptor::executor_type& executor,
                                const std::string& host, int port) {
  boost::system::error_code ec;
  const auto address = asio::ip::make_address(host, ec);
  if (!ec) return tcp::endpoint(address, static_cast<unsigned short>(port));
  tcp::resolver resolver(executor);
  const auto found = resolver.resolve(host, std::to_string(port), ec);
  if (host == "localhost" && (ec || found.empty()))  // images without /etc/hosts
    return tcp::endpoint(asio::ip::address_v4::loopback(), static_cast<unsigned short>(port));
  if (ec || found.empty()) return invalid_argument("host '{}': {}", host, ec.message());
  return found.begin()->endpoint();
}

// Without IPv6 around IPv4.
asio::ip::address plain(const asio::ip::address& address) {
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
  return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
}

}  // namespace

// Who has an IPv6 network has 2^64 addresses of it.
uint64_t tenant_of(const asio::ip::address& given) {
  const asio::ip::address address = plain(given);
  if (address.is_v4()) return address.to_v4().to_uint();
  uint64_t network = 0;
  const auto bytes = address.to_v6().to_bytes();
  for (size_t i = 0; i < 8; ++i) network = network << 8 | bytes[i];
  return network;
}

bool is_loopback_host(const std::string& host) {
  asio::io_context context;
  const auto endpoint = resolve(context.get_executor(), host, 0);
  return endpoint.ok() && plain(endpoint->address()).is_loopback();
}

Peer peer_of(const tcp::socket& socket) {
  boost::system::error_code ec;
  const auto endpoint = socket.remote_endpoint(ec);
  if (ec) return {};
  return {.is_on_loopback = plain(endpoint.address()).is_loopback(),
          .tenant = tenant_of(endpoint.address())};
}

Status listen_on(tcp::acceptor& socket, const std::string& host, int port, bool reuse_port) {
  ASSIGN_OR_RETURN(const tcp::endpoint endpoint, resolve(socket.get_executor(), host, port));
  boost::system::error_code ec;
  socket.open(endpoint.protocol(), ec);
  if (!ec) socket.set_option(tcp::acceptor::reuse_address(true), ec);
  using ReusePort = asio::detail::socket_option::boolean<SOL_SOCKET, SO_REUSEPORT>;
  if (!ec && reuse_port) socket.set_option(ReusePort(true), ec);
  if (!ec) socket.bind(endpoint, ec);
  if (!ec) socket.listen(1024, ec);
  if (ec == asio::error::address_in_use) {
    return unavailable("Socket '{}:{}' already in use", host, port);
  }
  if (ec) return unavailable("cannot listen on {}:{}: {}", host, port, ec.message());
  return ok();
}

}  // namespace nereid::front
