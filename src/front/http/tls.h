// TLS of a port, by OpenSSL, on bytes in memory: the connection owns the socket.
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

// ALPN names of the protocols inside TLS.
inline constexpr char kAlpnHttp[] = "http/1.1", kAlpnGrpc[] = "h2";

// Shared by the connections of a port. The files are read again when they change.
class TlsContext {
 public:
  // `protocol`: one of the above. InvalidArgument names the option and the unusable file.
  static StatusOr<std::shared_ptr<TlsContext>> create(const TlsOptions& options,
                                                      const char* protocol);

  // Any thread. Checks at most once a second whether a file has changed; unusable files leave
  // everything unchanged. The result keeps its context alive; null when memory is short.
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

// The server's end of one connection. TLS 1.2 or later; a client that offers protocols
// must offer the port's.
class TlsStream {
 public:
  // Throws std::bad_alloc.
  explicit TlsStream(TlsContext& context);

  // Takes bytes from the network and appends their plain text to `plain`. take() may then have
  // output, also on failure. False: the peer broke the protocol, has closed, or requests answers
  // without reading them.
  bool receive(std::string_view bytes, std::string& plain);
  // False during the handshake: no data may be sent.
  bool is_ready() const;
  // Encrypts `plain` and appends it to `out`.
  void send(std::string_view plain, std::string& out);
  // Sends close_notify.
  void shut();
  // Appends the network output to `out`.
  void take(std::string& out);

 private:
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  std::unique_ptr<SSL, Free> ssl_;
  BIO *in_, *out_;  // memory BIOs of a few records; ssl_ owns them
};

}  // namespace nereid::front
