#include "runtime/ranks/hosts/tls_socket.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace nereid::runtime {
namespace {

struct Free {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
using Context = std::unique_ptr<SSL_CTX, Free>;
using Session = std::unique_ptr<SSL, Free>;

std::string openssl_error() {
  char text[256] = "no reason";
  if (const auto code = ERR_peek_last_error(); code != 0)
    ERR_error_string_n(code, text, sizeof(text));
  ERR_clear_error();
  return text;
}

StatusOr<Context> make_context(const HostTls& tls, bool is_server) {
  Context context(SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method()));
  if (!context) return internal_error("TLS: {}", openssl_error());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  if (SSL_CTX_use_certificate_chain_file(context.get(), tls.cert.c_str()) != 1)
    return invalid_argument("join_tls_cert: {}: {}", tls.cert.string(), openssl_error());
  if (SSL_CTX_use_PrivateKey_file(context.get(), tls.key.c_str(), SSL_FILETYPE_PEM) != 1)
    return invalid_argument("join_tls_key: {}: {}", tls.key.string(), openssl_error());
  if (SSL_CTX_load_verify_locations(context.get(), tls.root.c_str(), nullptr) != 1)
    return invalid_argument("join_tls_root: {}: {}", tls.root.string(), openssl_error());
  return context;
}

Status shake_hands(SSL* ssl, int socket, bool is_server, Time deadline) {
  while (true) {
    const int result = is_server ? SSL_accept(ssl) : SSL_connect(ssl);
    if (result == 1) return ok();
    const int error = SSL_get_error(ssl, result);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
      return Status(absl::StatusCode::kUnauthenticated,
                    fmt::format("TLS handshake: {}", openssl_error()));
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now()).count();
    if (left <= 0) return deadline_exceeded("TLS handshake: the other side does not answer");
    pollfd end{.fd = socket,
               .events = static_cast<int16_t>(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT),
               .revents = 0};
    ::poll(&end, 1, static_cast<int>(std::min<int64_t>(left, 1 << 30)));
  }
}

// Bytes on their way in one direction.
struct Bytes {
  std::vector<char> data = std::vector<char>(64 << 10);
  size_t begin = 0, end = 0;
  bool is_empty() const { return begin == end; }
};

// Carries bytes between the connection and the plain socket; one thread.
class Carrier {
 public:
  Carrier(Session session, comm::Descriptor secret, comm::Descriptor plain)
      : session_(std::move(session)), secret_(std::move(secret)), plain_(std::move(plain)) {}

  void run() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    while (!is_over_) {
      bool has_moved = read_plain();
      has_moved = write_secret() || has_moved;
      has_moved = read_secret() || has_moved;
      has_moved = write_plain() || has_moved;
      if (!has_moved && !is_over_) wait();
    }
    SSL_shutdown(session_.get());
  }

 private:
  bool read_plain() {
    if (!out_.is_empty()) return false;
    const ssize_t got = ::recv(plain_.get(), out_.data.data(), out_.data.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) is_over_ = true;
    out_.begin = 0;
    out_.end = got > 0 ? static_cast<size_t>(got) : 0;
    return got > 0;
  }
  bool write_secret() {
    if (out_.is_empty()) return false;
    const int sent = SSL_write(session_.get(), out_.data.data() + out_.begin,
                               static_cast<int>(out_.end - out_.begin));
    if (sent > 0) out_.begin += static_cast<size_t>(sent);
    return sent > 0 || !waits(sent);
  }
  bool read_secret() {
    if (!in_.is_empty()) return false;
    const int got = SSL_read(session_.get(), in_.data.data(), static_cast<int>(in_.data.size()));
    in_.begin = 0;
    in_.end = got > 0 ? static_cast<size_t>(got) : 0;
    return got > 0 || !waits(got);
  }
  bool write_plain() {
    if (in_.is_empty()) return false;
    const ssize_t sent = ::send(plain_.get(), in_.data.data() + in_.begin, in_.end - in_.begin,
                                MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (sent < 0) is_over_ = true;
    if (sent > 0) in_.begin += static_cast<size_t>(sent);
    return true;
  }

  // Whether the connection waits for its socket; else it has ended.
  bool waits(int result) {
    const int error = SSL_get_error(session_.get(), result);
    wants_write_ = error == SSL_ERROR_WANT_WRITE;
    if (wants_write_ || error == SSL_ERROR_WANT_READ) return true;
    ERR_clear_error();
    is_over_ = true;
    return false;
  }

  void wait() const {
    const auto secret = POLLIN | (wants_write_ ? POLLOUT : 0);
    const auto plain = (out_.is_empty() ? POLLIN : 0) | (in_.is_empty() ? 0 : POLLOUT);
    pollfd ends[] = {{.fd = secret_.get(),
                      .events = static_cast<int16_t>(in_.is_empty() ? secret : secret & POLLOUT),
                      .revents = 0},
                     {.fd = plain_.get(), .events = static_cast<int16_t>(plain), .revents = 0}};
    ::poll(ends, 2, -1);
  }

  const Session session_;
  const comm::Descriptor secret_, plain_;
  Bytes in_, out_;  // from and to the connection
  bool wants_write_ = false, is_over_ = false;
};

}  // namespace

StatusOr<comm::Descriptor> make_tls_socket(comm::Descriptor socket, const HostTls& tls,
                                           bool is_server, Time deadline) {
  ASSIGN_OR_RETURN(const Context context, make_context(tls, is_server));
  Session session(SSL_new(context.get()));
  if (!session || SSL_set_fd(session.get(), socket.get()) != 1)
    return internal_error("TLS: {}", openssl_error());
  const int flags = ::fcntl(socket.get(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    return unavailable("a socket: {}", std::strerror(errno));
  RETURN_IF_ERROR(shake_hands(session.get(), socket.get(), is_server, deadline));
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return unavailable("a pair of sockets: {}", std::strerror(errno));
  comm::Descriptor ours(ends[0]), theirs(ends[1]);
  std::thread([carrier = std::make_shared<Carrier>(std::move(session), std::move(socket),
                                                   std::move(theirs))] {
    carrier->run();
  }).detach();
  return ours;
}

}  // namespace nereid::runtime
