#include "cli/load/http_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <system_error>

namespace nereid::cli {
namespace {

constexpr size_t kMaxHeadBytes = 64 << 10;
constexpr size_t kMaxEventBytes = size_t{16} << 20;

std::string_view stripped(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

template <class Number>
bool read_number(std::string_view text, Number& to, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

std::string errno_text() { return std::generic_category().message(errno); }

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

  // Waits until the socket is ready for `events`.
  Status wait(short events, Time deadline) const {
    while (true) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now()).count();
      if (left <= 0) return deadline_exceeded("no answer in time");
      pollfd entry{fd_, events, 0};
      const int ready = ::poll(&entry, 1, static_cast<int>(std::min<int64_t>(left + 1, 60'000)));
      if (ready > 0) return ok();
      if (ready < 0 && errno != EINTR) return unavailable("poll: {}", errno_text());
    }
  }

 private:
  int fd_;
};

Status connect_to(const Socket& socket, const addrinfo& address, Time deadline) {
  if (::connect(socket.fd(), address.ai_addr, address.ai_addrlen) == 0) return ok();
  if (errno != EINPROGRESS) return unavailable("connect: {}", errno_text());
  RETURN_IF_ERROR(socket.wait(POLLOUT, deadline));
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0) return ok();
  errno = error;
  return unavailable("connect: {}", errno_text());
}

StatusOr<std::unique_ptr<Socket>> open_socket(const ServerUrl& url, Time deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  if (const int error =
          ::getaddrinfo(url.host.c_str(), std::to_string(url.port).c_str(), &hints, &raw);
      error != 0) {
    return unavailable("{}: {}", url.host, ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(raw, &::freeaddrinfo);
  Status status = unavailable("{}: no address", url.host);
  for (const addrinfo* address = raw; address != nullptr; address = address->ai_next) {
    auto socket = std::make_unique<Socket>(::socket(
        address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, address->ai_protocol));
    if (socket->fd() < 0) return unavailable("socket: {}", errno_text());
    status = connect_to(*socket, *address, deadline);
    if (!status.ok()) continue;
    const int on = 1;
    ::setsockopt(socket->fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return socket;
  }
  return status;
}

Status send_all(const Socket& socket, std::string_view bytes, Time deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      RETURN_IF_ERROR(socket.wait(POLLOUT, deadline));
    } else if (errno != EINTR) {
      return unavailable("send: {}", errno_text());
    }
  }
  return ok();
}

}  // namespace

StatusOr<ServerUrl> parse_url(const std::string& text) {
  std::string_view rest = text;
  if (rest.starts_with("https://"))
    return unsupported("{}: https is not supported; allowed: http://", text);
  if (rest.starts_with("http://")) rest.remove_prefix(7);
  ServerUrl url;
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view host = rest.substr(0, slash);
  url.path = rest.substr(slash);
  while (url.path.ends_with('/')) url.path.pop_back();
  const size_t bracket = host.starts_with('[') ? host.find(']') : 0;
  if (bracket == host.npos) return invalid_argument("{}: ']' is missing", text);
  if (const size_t colon = host.find(':', bracket); colon != host.npos) {
    if (!read_number(host.substr(colon + 1), url.port) || url.port < 1 || url.port > 65535)
      return invalid_argument("{}: the port is not in [1, 65535]", text);
    host = host.substr(0, colon);
  }
  if (bracket > 0) host = host.substr(1, bracket - 1);
  if (host.empty() || host.find_first_of(" @\r\n") != host.npos)
    return invalid_argument("{}: is not http://HOST:PORT", text);
  url.host = host;
  return url;
}

Status ResponseParser::read_header(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == line.npos) return invalid_argument("a header line without ':'");
  const std::string_view name = line.substr(0, colon), value = stripped(line.substr(colon + 1));
  if (same_word(name, "Transfer-Encoding")) is_chunked_ |= same_word(value, "chunked");
  if (same_word(name, "Content-Length") && (!read_number(value, left_) || left_ < 0))
    return invalid_argument("Content-Length: '{}'", value.substr(0, 40));
  return ok();
}

// Parses the head without its final empty line.
Status ResponseParser::read_head(std::string_view head) {
  left_ = -1;
  is_chunked_ = false;
  bool is_first = true;
  while (!head.empty()) {
    const size_t end = std::min(head.find('\n'), head.size());
    const std::string_view line = stripped(head.substr(0, end));
    head.remove_prefix(std::min(end + 1, head.size()));
    if (!is_first) {
      RETURN_IF_ERROR(read_header(line));
      continue;
    }
    is_first = false;
    if (!line.starts_with("HTTP/1.") || line.size() < 12 ||
        !read_number(line.substr(9, 3), status_))
      return invalid_argument("'{}' is no status line of HTTP/1", line.substr(0, 40));
  }
  if (status_ >= 100 && status_ < 200) {
    state_ = State::kHead;  // "100 Continue" precedes the response
  } else if (status_ == 204 || status_ == 304 || (!is_chunked_ && left_ == 0)) {
    state_ = State::kDone;
  } else {
    state_ = is_chunked_ ? State::kChunkSize : State::kBody;
  }
  return ok();
}

// Parses a whole line of the framing between bodies.
Status ResponseParser::read_line(std::string_view line) {
  line = stripped(line);
  switch (state_) {
    case State::kChunkSize:
      if (!read_number(line.substr(0, std::min(line.find(';'), line.size())), left_, 16) ||
          left_ < 0)
        return invalid_argument("chunk size '{}'", line.substr(0, 40));
      state_ = left_ > 0 ? State::kChunk : State::kTrailer;
      return ok();
    case State::kChunkEnd:
      if (!line.empty()) return invalid_argument("a chunk is longer than its size line");
      state_ = State::kChunkSize;
      return ok();
    default:
      if (line.empty()) state_ = State::kDone;
      return ok();
  }
}

Status ResponseParser::take_body(std::string_view& bytes, const OnBody& on_body) {
  const size_t size = left_ < 0 ? bytes.size() : std::min(bytes.size(), static_cast<size_t>(left_));
  on_body(bytes.substr(0, size));
  bytes.remove_prefix(size);
  if (left_ < 0) return ok();
  left_ -= static_cast<int64_t>(size);
  if (left_ == 0) state_ = state_ == State::kChunk ? State::kChunkEnd : State::kDone;
  return ok();
}

Status ResponseParser::feed(std::string_view bytes, const OnBody& on_body) {
  while (!bytes.empty() && state_ != State::kDone) {
    if (state_ == State::kBody || state_ == State::kChunk) {
      RETURN_IF_ERROR(take_body(bytes, on_body));
      continue;
    }
    const size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end == bytes.npos ? end : end + 1);
    bytes.remove_prefix(end == bytes.npos ? bytes.size() : end + 1);
    if (line_.size() > kMaxHeadBytes)
      return invalid_argument("a header of more than {} bytes", kMaxHeadBytes);
    if (end == bytes.npos && !line_.ends_with('\n')) return ok();
    if (state_ != State::kHead) {
      RETURN_IF_ERROR(read_line(std::exchange(line_, {})));
    } else if (line_.ends_with("\n\r\n") || line_.ends_with("\n\n")) {
      const std::string head = std::exchange(line_, {});
      RETURN_IF_ERROR(
          read_head(std::string_view(head).substr(0, head.find_last_not_of("\r\n") + 1)));
    }
  }
  return ok();
}

Status ResponseParser::finish() {
  if (state_ == State::kBody && left_ < 0) state_ = State::kDone;
  if (state_ == State::kDone) return ok();
  return unavailable("the server closed the connection before its answer was complete");
}

StatusOr<int> send_call(const ServerUrl& url, const HttpCall& call, Time deadline,
                        const OnBody& on_body) {
  ASSIGN_OR_RETURN(const auto socket, open_socket(url, deadline));
  std::string text = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\n",
                                 call.method, url.path, call.path, url.host, url.port);
  for (const auto& [name, value] : call.headers) text += fmt::format("{}: {}\r\n", name, value);
  if (!call.body.empty()) text += fmt::format("Content-Length: {}\r\n", call.body.size());
  text += "\r\n" + call.body;
  RETURN_IF_ERROR(send_all(*socket, text, deadline));
  ResponseParser parser;
  std::vector<char> buffer(size_t{64} << 10);
  while (!parser.is_done()) {
    const ssize_t size = ::recv(socket->fd(), buffer.data(), buffer.size(), 0);
    if (size > 0) {
      RETURN_IF_ERROR(parser.feed({buffer.data(), static_cast<size_t>(size)}, on_body));
    } else if (size == 0) {
      RETURN_IF_ERROR(parser.finish());
    } else if (errno == EAGAIN) {
      RETURN_IF_ERROR(socket->wait(POLLIN, deadline));
    } else if (errno != EINTR) {
      return unavailable("recv: {}", errno_text());
    }
  }
  return parser.status();
}

Status EventParser::feed(std::string_view piece, const OnBody& on_data) {
  while (!piece.empty()) {
    const size_t end = piece.find('\n');
    line_ += piece.substr(0, end);
    if (line_.size() > kMaxEventBytes)
      return resource_exhausted("an event of more than {} bytes", kMaxEventBytes);
    if (end == piece.npos) return ok();
    piece.remove_prefix(end + 1);
    const std::string line = std::exchange(line_, {});
    if (line.starts_with("data:")) on_data(stripped(std::string_view(line).substr(5)));
  }
  return ok();
}

}  // namespace nereid::cli
