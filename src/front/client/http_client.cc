#include "front/client/http_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>
#include <system_error>

#include <fmt/format.h>

namespace nereid::front {
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
  Socket(int fd, const std::atomic<bool>* stop) : fd_(fd), stop_(stop) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }
  bool is_stopped() const { return stop_ && *stop_; }

  // Waits until the socket is ready for `events`.
  Status wait(short events, Time deadline) const {
    while (true) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now()).count();
      if (left <= 0) return deadline_exceeded("no answer in time");
      if (is_stopped()) return cancelled("stopped");
      pollfd entry{fd_, events, 0};
      const int64_t longest = stop_ ? 50 : 60'000;
      const int ready = ::poll(&entry, 1, static_cast<int>(std::min<int64_t>(left + 1, longest)));
      if (ready > 0) return ok();
      if (ready < 0 && errno != EINTR) return unavailable("poll: {}", errno_text());
    }
  }

 private:
  int fd_;
  const std::atomic<bool>* const stop_;
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

StatusOr<std::unique_ptr<Socket>> open_socket(const Url& url, Time deadline,
                                              const std::atomic<bool>* stop) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  int error = ::getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &raw);
  if (error != 0 && url.host == "localhost")  // images without /etc/hosts
    error = ::getaddrinfo("127.0.0.1", url.port.c_str(), &hints, &raw);
  if (error != 0) return unavailable("{}: {}", url.host, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(raw, &::freeaddrinfo);
  Status status = unavailable("{}: no address", url.host);
  for (const addrinfo* address = raw; address != nullptr; address = address->ai_next) {
    const int fd = ::socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
                            address->ai_protocol);
    auto socket = std::make_unique<Socket>(fd, stop);
    if (socket->fd() < 0) return unavailable("socket: {}", errno_text());
    status = connect_to(*socket, *address, deadline);
    if (!status.ok()) continue;
    const int on = 1;
    ::setsockopt(socket->fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return socket;
  }
  return status;
}

// A connection, plain or with TLS. OpenSSL gets and gives its bytes in memory, so that sockets are
// written in one place, without SIGPIPE.
class Connection {
 public:
  Connection(std::unique_ptr<Socket> socket, Time deadline)
      : socket_(std::move(socket)), deadline_(deadline) {}

  Status start_tls(const TlsClient& tls, const std::string& host);
  Status write(std::string_view bytes);
  // Appends what has arrived, at least a byte; nothing at the end of the connection.
  Status read(std::string& bytes);

 private:
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  Status send(std::string_view bytes);
  StatusOr<size_t> receive();  // into buffer_; 0: the end
  Status flush();              // sends what OpenSSL has written
  // Repeats an operation of OpenSSL while it waits for bytes. False: the peer has ended TLS.
  StatusOr<bool> repeat(const char* step, const std::function<int()>& operation);

  const std::unique_ptr<Socket> socket_;
  const Time deadline_;
  std::unique_ptr<SSL, Free> ssl_;  // null: plain
  std::array<char, size_t{64} << 10> buffer_;
};

Status Connection::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      RETURN_IF_ERROR(socket_->wait(POLLOUT, deadline_));
    } else if (errno != EINTR) {
      return unavailable("send: {}", errno_text());
    }
  }
  return ok();
}

StatusOr<size_t> Connection::receive() {
  while (true) {
    if (socket_->is_stopped()) return cancelled("stopped");
    const ssize_t size = ::recv(socket_->fd(), buffer_.data(), buffer_.size(), 0);
    if (size >= 0) return static_cast<size_t>(size);
    if (errno == EAGAIN) {
      RETURN_IF_ERROR(socket_->wait(POLLIN, deadline_));
    } else if (errno != EINTR) {
      return unavailable("recv: {}", errno_text());
    }
  }
}

Status Connection::flush() {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(SSL_get_wbio(ssl_.get()), &bytes);
  if (size <= 0) return ok();
  RETURN_IF_ERROR(send({bytes, static_cast<size_t>(size)}));
  BIO_reset(SSL_get_wbio(ssl_.get()));
  return ok();
}

StatusOr<bool> Connection::repeat(const char* step, const std::function<int()>& operation) {
  while (true) {
    ERR_clear_error();
    const int result = operation();
    const int error = SSL_get_error(ssl_.get(), result);
    const unsigned long reason = ERR_peek_error();
    RETURN_IF_ERROR(flush());
    if (result > 0) return true;
    if (error == SSL_ERROR_ZERO_RETURN) return false;
    if (error != SSL_ERROR_WANT_READ) {
      const long verified = SSL_get_verify_result(ssl_.get());
      if (verified != X509_V_OK)
        return invalid_argument("{}: {}", step, X509_verify_cert_error_string(verified));
      const char* text = ERR_reason_error_string(reason);
      return unavailable("{}: {}", step, text ? text : "the connection broke");
    }
    ASSIGN_OR_RETURN(const size_t size, receive());
    if (size == 0) return unavailable("{}: the server closed the connection", step);
    BIO_write(SSL_get_rbio(ssl_.get()), buffer_.data(), static_cast<int>(size));
  }
}

Status Connection::start_tls(const TlsClient& tls, const std::string& host) {
  ssl_.reset(SSL_new(tls.context()));
  if (!ssl_) return internal_error("SSL_new fails");
  SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  X509_VERIFY_PARAM* const verify = SSL_get0_param(ssl_.get());
  if (X509_VERIFY_PARAM_set1_ip_asc(verify, host.c_str()) != 1) {  // a name, not an address
    SSL_set1_host(ssl_.get(), host.c_str());
    SSL_set_tlsext_host_name(ssl_.get(), host.c_str());
  }
  return repeat("TLS handshake", [&] { return SSL_connect(ssl_.get()); }).status();
}

Status Connection::write(std::string_view bytes) {
  if (!ssl_) return send(bytes);
  return repeat("write",
                [&] { return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())); })
      .status();
}

Status Connection::read(std::string& bytes) {
  if (!ssl_) {
    ASSIGN_OR_RETURN(const size_t size, receive());
    bytes.append(buffer_.data(), size);
    return ok();
  }
  std::array<char, size_t{16} << 10> plain;
  int size = 0;
  ASSIGN_OR_RETURN(const bool goes_on, repeat("read", [&] {
                     return size = SSL_read(ssl_.get(), plain.data(), plain.size());
                   }));
  if (goes_on) bytes.append(plain.data(), static_cast<size_t>(size));
  return ok();
}

std::string request_text(const Url& url, const HttpCall& call) {
  std::string target = url.target;
  if (!call.path.empty()) {
    while (target.ends_with('/')) target.pop_back();
    target += call.path;
  }
  std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", call.method,
                                 target, host_header(url));
  for (const auto& [name, value] : call.headers) text += fmt::format("{}: {}\r\n", name, value);
  if (!call.body.empty()) text += fmt::format("Content-Length: {}\r\n", call.body.size());
  return text + "\r\n" + call.body;
}

}  // namespace

StatusOr<std::shared_ptr<const TlsClient>> TlsClient::create(const std::string& ca_file) {
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  if (!context) return internal_error("SSL_CTX_new fails");
  std::shared_ptr<const TlsClient> tls(new TlsClient(context));
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  ERR_clear_error();
  const bool good = ca_file.empty()
                        ? SSL_CTX_set_default_verify_paths(context) == 1
                        : SSL_CTX_load_verify_locations(context, ca_file.c_str(), nullptr) == 1;
  if (good) return tls;
  const char* text = ERR_reason_error_string(ERR_peek_last_error());
  return invalid_argument("'{}' cannot be used: {}", ca_file, text ? text : "no certificates");
}

TlsClient::~TlsClient() { SSL_CTX_free(context_); }

Status ResponseParser::read_header(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == line.npos) return invalid_argument("a header line without ':'");
  const std::string_view name = line.substr(0, colon), value = stripped(line.substr(colon + 1));
  if (same_word(name, "Transfer-Encoding")) is_chunked_ |= same_word(value, "chunked");
  if (same_word(name, "Content-Length") && (!read_number(value, left_) || left_ < 0))
    return invalid_argument("Content-Length: '{}'", value.substr(0, 40));
  if (same_word(name, "Retry-After")) retry_after_ = value;
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

StatusOr<HttpAnswer> send_call(const Url& url, const HttpCall& call, Time deadline,
                               const OnBody& on_body, const TlsClient* tls) {
  ASSIGN_OR_RETURN(auto socket, open_socket(url, deadline, call.stop));
  const auto connection = std::make_unique<Connection>(std::move(socket), deadline);
  if (url.is_tls && !tls) return invalid_argument("{}: https needs settings of TLS", url.host);
  if (url.is_tls) RETURN_IF_ERROR(connection->start_tls(*tls, url.host));
  // A server that refuses a body may answer without reading all of it.
  const Status written = connection->write(request_text(url, call));
  ResponseParser parser;
  const OnBody no_body = [](std::string_view) {};
  while (!parser.is_done() && (on_body || !parser.has_head())) {
    std::string bytes;
    if (const Status status = connection->read(bytes); !status.ok())
      return written.ok() ? status : written;
    RETURN_IF_ERROR(bytes.empty() ? parser.finish()
                                  : parser.feed(bytes, on_body ? on_body : no_body));
  }
  return HttpAnswer{parser.status(), parser.retry_after()};
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

}  // namespace nereid::front
