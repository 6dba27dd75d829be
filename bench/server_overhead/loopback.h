// Blocking TCP sockets of this machine's own address, for the benchmarks of the server.
#pragma once

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace nereid::bench {

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {
    NEREID_CHECK(fd_ >= 0);
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  static Socket connect(int port) {
    Socket out(socket(AF_INET, SOCK_STREAM, 0));
    const sockaddr_in address = loopback(port);
    NEREID_CHECK(::connect(out.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
                 0);
    return out;
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }

  void send(std::string_view bytes) const {
    NEREID_CHECK(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                 static_cast<ssize_t>(bytes.size()));
  }
  // What is there, at least one byte; "" at the end. Looks for it for up to `spin` before it
  // sleeps.
  std::string_view receive(Duration spin = {}) {
    pollfd readable{fd_, POLLIN, 0};
    for (const Time end = now() + spin; now() < end && poll(&readable, 1, 0) == 0;) continue;
    const ssize_t n = recv(fd_, buffer_.data(), buffer_.size(), 0);
    return {buffer_.data(), static_cast<size_t>(std::max<ssize_t>(n, 0))};
  }

 private:
  int fd_;
  std::array<char, 65536> buffer_;
};

// One port.
class LoopbackListener {
 public:
  // Port 0: any free one.
  explicit LoopbackListener(int port = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const int on = 1;
    setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address = loopback(port);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    NEREID_CHECK(bind(fd_, any, size) == 0 && listen(fd_, 128) == 0);
    NEREID_CHECK(getsockname(fd_, any, &size) == 0);
    port_ = ntohs(address.sin_port);
  }
  ~LoopbackListener() { close(fd_); }
  LoopbackListener(const LoopbackListener&) = delete;
  LoopbackListener& operator=(const LoopbackListener&) = delete;

  Socket accept() const { return Socket(::accept(fd_, nullptr, nullptr)); }
  int port() const { return port_; }

 private:
  const int fd_;
  int port_ = 0;
};

}  // namespace nereid::bench
