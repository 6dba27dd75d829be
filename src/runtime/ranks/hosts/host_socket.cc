#include "runtime/ranks/hosts/host_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "runtime/ranks/hosts/tls_socket.h"

namespace nereid::runtime {
namespace {

constexpr uint32_t kMaxFrameBytes = 64 << 10;
constexpr auto kHelloLimit = std::chrono::seconds(5);  // from a connection to its hello
constexpr auto kRetry = std::chrono::milliseconds(100);
constexpr const char *kToken = "token", *kVersion = "version", *kError = "error", *kCode = "code";
constexpr size_t kMinTokenBytes = 16, kMaxTokenBytes = 4096;

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

StatusOr<Addresses> resolve(const HostAddress& address, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(address.port);
  if (const int error = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &list);
      error != 0)
    return unavailable("{}: {}", text_of(address), ::gai_strerror(error));
  return Addresses(list);
}

// Small messages leave at once; a host that is gone is found without messages.
void set_options(int socket) {
  const auto set = [&](int level, int name, int value) {
    ::setsockopt(socket, level, name, &value, sizeof(value));
  };
  constexpr int kIdleSeconds = 5, kPeriodSeconds = 2, kLost = 3, kUnsentMs = 10'000;
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kPeriodSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kLost);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kUnsentMs);
}

int milliseconds_until(Time deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

// Whether the socket is ready before the deadline.
bool is_ready(int socket, int16_t events, Time deadline) {
  pollfd end{.fd = socket, .events = events, .revents = 0};
  int got;
  while ((got = ::poll(&end, 1, milliseconds_until(deadline))) < 0 && errno == EINTR) {
  }
  return got > 0;
}

StatusOr<comm::Descriptor> connect_once(const HostAddress& address, Time deadline) {
  ASSIGN_OR_RETURN(const Addresses list, resolve(address, 0));
  Status last = unavailable("{}: no address", text_of(address));
  for (const addrinfo* at = list.get(); at; at = at->ai_next) {
    comm::Descriptor socket(
        ::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol));
    if (!socket) continue;
    int error = ::connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t length = sizeof(error);
      if (!is_ready(socket.get(), POLLOUT, deadline))
        error = ETIMEDOUT;
      else
        ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
    if (error == 0) {
      const int flags = ::fcntl(socket.get(), F_GETFL);
      ::fcntl(socket.get(), F_SETFL, flags & ~O_NONBLOCK);
      set_options(socket.get());
      return socket;
    }
    last = unavailable("{}: {}", text_of(address), std::strerror(error));
  }
  return last;
}

Status read_exactly(int socket, char* data, size_t bytes, Time deadline) {
  while (bytes > 0) {
    if (!is_ready(socket, POLLIN, deadline))
      return deadline_exceeded("the other process sends nothing");
    const ssize_t got = ::recv(socket, data, bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return unavailable("the connection: {}", std::strerror(errno));
    if (got == 0) return unavailable("the other process has closed the connection");
    data += got;
    bytes -= static_cast<size_t>(got);
  }
  return ok();
}

Status check_hello(const json::object& hello, const HostSecrets& secrets) {
  ASSIGN_OR_RETURN(const std::string token, text_field(hello, kToken));
  if (token.size() != secrets.token.size() ||
      CRYPTO_memcmp(token.data(), secrets.token.data(), token.size()) != 0)
    return Status(absl::StatusCode::kPermissionDenied,
                  "the token is another one: give both sides the same token file");
  ASSIGN_OR_RETURN(const std::string version, text_field(hello, kVersion));
  if (version == NEREID_VERSION) return ok();
  return Status(absl::StatusCode::kFailedPrecondition,
                fmt::format("version {} meets version {}: all processes must be of one version",
                            version.substr(0, 64), NEREID_VERSION));
}

}  // namespace

StatusOr<HostAddress> parse_host_address(std::string_view text) {
  const auto wrong = [&] {
    return invalid_argument("'{}' is no address; expected is HOST:PORT or [IPV6]:PORT", text);
  };
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) return wrong();
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  const bool has_brackets = host.starts_with('[') && host.ends_with(']');
  if (has_brackets) host = host.substr(1, host.size() - 2);
  if (host.empty() || (!has_brackets && host.find(':') != host.npos)) return wrong();
  HostAddress address{.host = std::string(host)};
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size()) return wrong();
  return address;
}

std::string text_of(const HostAddress& address) {
  const bool is_ipv6 = address.host.find(':') != std::string::npos;
  return is_ipv6 ? fmt::format("[{}]:{}", address.host, address.port)
                 : fmt::format("{}:{}", address.host, address.port);
}

StatusOr<HostSecrets> read_host_secrets(const std::filesystem::path& token_file, HostTls tls) {
  if (tls.cert.empty() != tls.key.empty() || tls.cert.empty() != tls.root.empty())
    return invalid_argument(
        "join_tls_cert, join_tls_key, join_tls_root: '{}', '{}', '{}': all three are needed for "
        "TLS",
        tls.cert.string(), tls.key.string(), tls.root.string());
  ASSIGN_OR_RETURN(std::string token, read_file(token_file, 2 * kMaxTokenBytes));
  token.resize(token.find_last_not_of(" \t\r\n") + 1);
  if (token.size() < kMinTokenBytes || token.size() > kMaxTokenBytes)
    return invalid_argument(
        "{}: a token of {} bytes; allowed are {} to {}, as from `openssl rand "
        "-hex 32`",
        token_file.string(), token.size(), kMinTokenBytes, kMaxTokenBytes);
  return HostSecrets{std::move(token), std::move(tls)};
}

StatusOr<comm::Descriptor> listen_at(const HostAddress& address) {
  ASSIGN_OR_RETURN(const Addresses list, resolve(address, AI_PASSIVE));
  comm::Descriptor socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, list->ai_protocol));
  if (!socket) return unavailable("a socket: {}", std::strerror(errno));
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(socket.get(), list->ai_addr, list->ai_addrlen) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0)
    return unavailable("{}: {}", text_of(address), std::strerror(errno));
  return socket;
}

uint16_t local_port(const comm::Descriptor& socket) {
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0) return 0;
  return ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&own)->sin6_port
                                         : reinterpret_cast<sockaddr_in*>(&own)->sin_port);
}

StatusOr<std::string> remote_host(const comm::Descriptor& socket) {
  sockaddr_storage other{};
  socklen_t length = sizeof(other);
  char host[NI_MAXHOST];
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&other), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&other), length, host, sizeof(host), nullptr, 0,
                    NI_NUMERICHOST) != 0)
    return unavailable("the address of a connection: {}", std::strerror(errno));
  return host;
}

StatusOr<HostConnection> dial_host(const HostAddress& address, const HostSecrets& secrets,
                                   json::object hello, Time deadline) {
  hello[kToken] = secrets.token;
  hello[kVersion] = NEREID_VERSION;
  while (true) {
    auto socket = connect_once(address, deadline);
    if (socket.ok()) {
      HostConnection connection{.socket = *std::move(socket), .message = {}, .host = address.host};
      const Time limit = std::min(deadline, now() + kHelloLimit);
      if (secrets.tls.is_on()) {
        ASSIGN_OR_RETURN(connection.socket,
                         make_tls_socket(std::move(connection.socket), secrets.tls,
                                         /*is_server=*/false, limit));
      }
      RETURN_IF_ERROR(send_frame(connection.socket, hello));
      ASSIGN_OR_RETURN(connection.message, receive_frame(connection.socket, limit + kHelloLimit));
      return connection;
    }
    if (now() + kRetry >= deadline)
      return deadline_exceeded("no answer: {}", message(socket.status()));
    std::this_thread::sleep_for(kRetry);
  }
}

StatusOr<comm::Descriptor> accept_socket(const comm::Descriptor& listener) {
  comm::Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket) return unavailable("a connection: {}", std::strerror(errno));
  set_options(socket.get());
  return socket;
}

StatusOr<HostConnection> meet_host(comm::Descriptor socket, const HostSecrets& secrets) {
  HostConnection connection{.socket = std::move(socket), .message = {}, .host = {}};
  ASSIGN_OR_RETURN(connection.host, remote_host(connection.socket));
  const Time deadline = now() + kHelloLimit;
  if (secrets.tls.is_on()) {
    auto plain =
        make_tls_socket(std::move(connection.socket), secrets.tls, /*is_server=*/true, deadline);
    if (!plain.ok()) return annotate(plain.status(), connection.host);
    connection.socket = *std::move(plain);
  }
  auto hello = receive_frame(connection.socket, deadline);
  if (!hello.ok()) return annotate(hello.status(), connection.host);
  connection.message = *std::move(hello);
  if (const Status status = check_hello(connection.message, secrets); !status.ok()) {
    refuse_host(connection, status);
    return annotate(status, connection.host);
  }
  connection.message.erase(kToken);
  return connection;
}

void refuse_host(const HostConnection& connection, const Status& reason) {
  send_frame(connection.socket,
             {{kError, message(reason)}, {kCode, static_cast<int64_t>(reason.code())}})
      .IgnoreError();
}

Status send_frame(const comm::Descriptor& socket, const json::object& message) {
  const std::string text = json::serialize(message);
  if (text.size() > kMaxFrameBytes)
    return internal_error("a frame of {} bytes; at most {}", text.size(), kMaxFrameBytes);
  std::string frame(sizeof(uint32_t), '\0');
  const auto bytes = static_cast<uint32_t>(text.size());
  for (size_t i = 0; i < frame.size(); ++i) frame[i] = static_cast<char>(bytes >> (8 * i) & 0xff);
  frame += text;
  // A frame fits the socket's buffer.
  for (std::string_view left = frame; !left.empty();) {
    const ssize_t sent = ::send(socket.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return unavailable("the connection: {}", std::strerror(errno));
    left.remove_prefix(static_cast<size_t>(sent));
  }
  return ok();
}

StatusOr<json::object> receive_frame(const comm::Descriptor& socket, Time deadline) {
  unsigned char head[4];
  RETURN_IF_ERROR(
      read_exactly(socket.get(), reinterpret_cast<char*>(head), sizeof(head), deadline));
  uint32_t bytes = 0;
  for (size_t i = 0; i < sizeof(head); ++i) bytes |= uint32_t{head[i]} << (8 * i);
  if (bytes > kMaxFrameBytes)
    return data_loss("a frame of {} bytes; at most {}: the other side is no nereid, or uses TLS",
                     bytes, kMaxFrameBytes);
  std::string text(bytes, '\0');
  RETURN_IF_ERROR(read_exactly(socket.get(), text.data(), text.size(), deadline));
  constexpr size_t kMaxDepth = 4;
  auto message = parse_json(text, kMaxDepth);
  if (!message.ok() || !message->is_object()) return data_loss("a frame that is no JSON object");
  if (const json::value* const error = message->get_object().if_contains(kError)) {
    const json::value* const code = message->get_object().if_contains(kCode);
    const int64_t number = code && code->is_int64() ? code->get_int64() : 0;
    const bool is_known =
        number > 0 && number <= static_cast<int64_t>(absl::StatusCode::kUnauthenticated);
    return Status(is_known ? static_cast<absl::StatusCode>(number) : absl::StatusCode::kUnknown,
                  fmt::format("refused: {}",
                              error->is_string() ? std::string_view(error->get_string()) : ""));
  }
  return std::move(message->get_object());
}

StatusOr<std::string> text_field(const json::object& message, std::string_view name) {
  const json::value* const value = message.if_contains(name);
  if (value && value->is_string()) return std::string(value->get_string());
  return data_loss("a message of processes has no text '{}'", name);
}

StatusOr<int64_t> number_field(const json::object& message, std::string_view name) {
  const json::value* const value = message.if_contains(name);
  if (value && value->is_int64()) return value->get_int64();
  return data_loss("a message of processes has no number '{}'", name);
}

}  // namespace nereid::runtime
