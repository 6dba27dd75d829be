// A blocking client over real sockets, for tests of whole servers.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/testing/wait.h"

namespace nereid::front {

struct Reply {
  int status = 0;
  std::string head;
  std::string body;  // chunks joined
  json::value json() const { return *parse_json(body); }
};

// -1: the port is closed.
inline int connect_to(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  const timeval timeout{60, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

// False when the peer accepts no more.
inline bool send_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// `headers`: whole lines, each with its end.
inline std::string request_text(std::string_view method, std::string_view path,
                                std::string_view body, std::string_view headers = "") {
  return fmt::format(
      "{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{}Content-Length: {}\r\n\r\n{}",
      method, path, headers, body.size(), body);
}

inline std::string dechunk(std::string_view text) {
  std::string out;
  for (;;) {
    const size_t line = text.find("\r\n");
    if (line == std::string_view::npos) return out + "<cut>";
    const size_t size = std::stoul(std::string(text.substr(0, line)), nullptr, 16);
    if (size == 0) return out;
    out += text.substr(line + 2, size);
    text.remove_prefix(std::min(text.size(), line + 2 + size + 2));
  }
}

inline Reply ask(int port, std::string_view method, std::string_view path,
                 std::string_view body = "", std::string_view headers = "") {
  const int fd = connect_to(port);
  const std::string text = request_text(method, path, body, headers);
  EXPECT_EQ(send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  std::string all;
  char buffer[8192];
  for (ssize_t n; (n = recv(fd, buffer, sizeof buffer, 0)) > 0 || (n < 0 && errno == EINTR);)
    all.append(buffer, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  close(fd);
  Reply reply;
  const size_t end = all.find("\r\n\r\n");
  if (end == std::string::npos) return reply;
  reply.head = all.substr(0, end + 2);
  reply.status = std::stoi(all.substr(9, 3));
  reply.body = all.substr(end + 4);
  if (reply.head.find("chunked") != std::string::npos) reply.body = dechunk(reply.body);
  return reply;
}

}  // namespace nereid::front
