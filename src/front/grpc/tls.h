// TLS of a gRPC port, by OpenSSL. Works on bytes in memory: the socket stays the connection's.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "front/grpc/options.h"

namespace nereid::front {

// Shared by the connections of a port.
class TlsContext {
 public:
  // InvalidArgument names the option and the file that cannot be used.
  static StatusOr<std::shared_ptr<TlsContext>> create(const TlsOptions& options);
  SSL_CTX* get() const { return context_.get(); }

 private:
  struct Free {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };
  explicit TlsContext(SSL_CTX* context) : context_(context) {}
  std::unique_ptr<SSL_CTX, Free> context_;
};

// The server's end of one connection. TLS 1.2 or later, ALPN "h2".
class TlsStream {
 public:
  // `context` is kept. Throws std::bad_alloc.
  explicit TlsStream(std::shared_ptr<TlsContext> context);

  // Bytes from the network; what they say is appended to `plain`. Afterwards take() may have an
  // answer, also when this fails. False: the peer broke the protocol, has closed, or asks for
  // answers that nobody takes.
  bool receive(std::string_view bytes, std::string& plain);
  // Before the handshake is over nothing may be sent.
  bool is_ready() const;
  // Appends what `plain` becomes to `out`.
  void send(std::string_view plain, std::string& out);
  // Nothing follows: says so to the peer.
  void shut();
  // Moves what has to go to the network behind `out`.
  void take(std::string& out);

 private:
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  std::shared_ptr<TlsContext> context_;
  std::unique_ptr<SSL, Free> ssl_;
  BIO *in_, *out_;  // memory, of a few records; ssl_ owns them
};

}  // namespace nereid::front
