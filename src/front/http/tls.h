// TLS of a port, by OpenSSL. Works on bytes in memory: the socket stays the connection's.
#pragma once

#include <openssl/ssl.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/status.h"
#include "front/http/tls_options.h"

namespace nereid::front {

// What a port speaks inside TLS, by its ALPN name.
inline constexpr char kAlpnHttp[] = "http/1.1", kAlpnGrpc[] = "h2";

// Shared by the connections of a port. The files are read again when they change.
class TlsContext {
 public:
  // `protocol`: one of the above. InvalidArgument names the option and the file that cannot be
  // used.
  static StatusOr<std::shared_ptr<TlsContext>> create(const TlsOptions& options,
                                                      const char* protocol);

  // Any thread. Looks at most once a second whether a file has changed; files that cannot be used
  // leave everything as it is. The result keeps the context it was made for, or is null when memory
  // is short.
  SSL* new_connection();

 private:
  struct Free {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };
  using Context = std::unique_ptr<SSL_CTX, Free>;
  using Times = std::array<std::filesystem::file_time_type, 3>;

  TlsContext(TlsOptions options, const char* protocol)
      : options_(std::move(options)), protocol_(protocol) {}
  StatusOr<Context> read();
  Times file_times() const;
  void reload_if_changed();

  const TlsOptions options_;
  const char* const protocol_;
  std::atomic<int64_t> next_look_ns_{0};
  std::mutex mutex_;
  Times read_times_;
  Context context_;
};

// The server's end of one connection. TLS 1.2 or later; a client that offers protocols must offer
// the port's.
class TlsStream {
 public:
  // Throws std::bad_alloc.
  explicit TlsStream(TlsContext& context);

  // Bytes from the network; what they say is appended to `plain`. Afterwards take() may have an
  // answer, also when this fails. False: the peer broke the protocol, has closed, or asks for
  // answers that it does not read.
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
  std::unique_ptr<SSL, Free> ssl_;
  BIO *in_, *out_;  // memory, of a few records; ssl_ owns them
};

}  // namespace nereid::front
