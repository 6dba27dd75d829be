#include "front/http/listen.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

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

// A number of the environment; 0 if the variable is absent or no number.
int number_of(const char* variable) {
  const char* const value = std::getenv(variable);
  const std::string_view text = value == nullptr ? "" : value;
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

// Endpoint of a TCP socket that listens; absent for any other descriptor.
std::optional<tcp::endpoint> listening_endpoint(int fd) {
  int listens = 0;
  socklen_t size = sizeof(listens);
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) return {};
  tcp::endpoint out;
  size = static_cast<socklen_t>(out.capacity());
  if (::getsockname(fd, out.data(), &size) != 0) return {};
  if (out.data()->sa_family != AF_INET && out.data()->sa_family != AF_INET6) return {};
  out.resize(size);
  return out;
}

// The socket on the endpoint's port that systemd opened for this process: one of LISTEN_FDS
// descriptors from 3 on, if LISTEN_PID is this process (sd_listen_fds(3)). -1 if there is none. A
// copy, which the caller closes. InvalidArgument: it listens on another address.
StatusOr<int> inherited_socket(const tcp::endpoint& wanted) {
  constexpr int kFirst = 3, kMost = 64;
  if (wanted.port() == 0 || number_of("LISTEN_PID") != ::getpid()) return -1;
  const int end = kFirst + std::clamp(number_of("LISTEN_FDS"), 0, kMost);
  for (int fd = kFirst; fd < end; ++fd) {
    const auto found = listening_endpoint(fd);
    if (!found || found->port() != wanted.port()) continue;
    const asio::ip::address address = plain(found->address()), host = plain(wanted.address());
    if (address != host && !(address.is_unspecified() && host.is_unspecified()))
      return invalid_argument(
          "the socket that systemd opened for port {} listens on {}, not on {}; give the address "
          "of "
          "the socket unit's ListenStream=",
          wanted.port(), address.to_string(), host.to_string());
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    return ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  }
  return -1;
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
  ASSIGN_OR_RETURN(const int inherited, inherited_socket(endpoint));
  if (inherited >= 0) {
    const auto found = listening_endpoint(inherited);
    socket.assign(found ? found->protocol() : endpoint.protocol(), inherited, ec);
    if (!ec) return ok();
    ::close(inherited);
    return unavailable("cannot take over the socket of port {}: {}", port, ec.message());
  }
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
