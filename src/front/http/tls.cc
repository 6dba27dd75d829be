#include "front/http/tls.h"

#include <openssl/err.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace nereid::front {
namespace {

constexpr size_t kRecord = 16384;      // the largest TLS record
constexpr size_t kMaxUntaken = 65536;  // no handshake is longer
constexpr int64_t kLookIntervalNs = 1'000'000'000;

// The newest of OpenSSL's errors; empties the queue, which is the thread's.
std::string tls_error() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(code);
  return reason == nullptr ? "unknown error" : reason;
}

Status bad_file(const TlsOptions& o, const char* what, const std::string& path) {
  if (path.empty()) return invalid_argument("--{}-{}: TLS needs a file (PEM)", o.flags, what);
  return invalid_argument("--{}-{}: '{}' cannot be used: {}", o.flags, what, path, tls_error());
}

// ALPN: a client that offers protocols must offer `protocol`, a C string.
int select_protocol(SSL*, const unsigned char** chosen, unsigned char* size,
                    const unsigned char* offered, unsigned int num_offered, void* protocol) {
  const std::string_view wanted(static_cast<const char*>(protocol));
  for (unsigned int at = 0; at < num_offered;) {
    const unsigned int length = offered[at++];
    if (length > num_offered - at) break;
    if (wanted == std::string_view(reinterpret_cast<const char*>(offered + at), length)) {
      *chosen = offered + at;
      *size = static_cast<unsigned char>(length);
      return SSL_TLSEXT_ERR_OK;
    }
    at += length;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

}  // namespace

StatusOr<std::shared_ptr<TlsContext>> TlsContext::create(const TlsOptions& options,
                                                         const char* protocol) {
  const std::shared_ptr<TlsContext> out(new TlsContext(options, protocol));
  out->read_times_ = out->file_times();
  ASSIGN_OR_RETURN(out->context_, out->read());
  return out;
}

StatusOr<TlsContext::Context> TlsContext::read() {
  Context out(SSL_CTX_new(TLS_server_method()));
  SSL_CTX* context = out.get();
  if (context == nullptr) return internal_error("TLS: {}", tls_error());
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);  // idle connections keep no buffers
  SSL_CTX_set_alpn_select_cb(context, select_protocol, const_cast<char*>(protocol_));
  const TlsOptions& o = options_;
  if (SSL_CTX_use_certificate_chain_file(context, o.server_cert.c_str()) != 1) {
    return bad_file(o, "server-cert", o.server_cert);
  }
  if (SSL_CTX_use_PrivateKey_file(context, o.server_key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return bad_file(o, "server-key", o.server_key);
  }
  if (o.is_mutual) {
    STACK_OF(X509_NAME)* names = SSL_load_client_CA_file(o.root_cert.c_str());
    if (names == nullptr || SSL_CTX_load_verify_file(context, o.root_cert.c_str()) != 1) {
      sk_X509_NAME_pop_free(names, X509_NAME_free);
      return bad_file(o, "root-cert", o.root_cert);
    }
    SSL_CTX_set_client_CA_list(context, names);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    constexpr unsigned char kSessions[] = "nereid";
    SSL_CTX_set_session_id_context(context, kSessions, sizeof kSessions - 1);
  }
  return out;
}

TlsContext::Times TlsContext::file_times() const {
  Times out{};
  const std::string* files[] = {&options_.server_cert, &options_.server_key, &options_.root_cert};
  for (size_t i = 0; i < out.size(); ++i) {
    std::error_code error;  // a missing file has a time, too
    out[i] = std::filesystem::last_write_time(*files[i], error);
  }
  return out;
}

void TlsContext::reload_if_changed() {
  const auto time_ns = static_cast<int64_t>(now_ns());
  int64_t next = next_look_ns_.load();
  if (time_ns < next || !next_look_ns_.compare_exchange_strong(next, time_ns + kLookIntervalNs)) {
    return;
  }
  const Times times = file_times();
  {
    std::lock_guard lock(mutex_);
    if (times == std::exchange(read_times_, times)) return;
  }
  auto context = read();
  if (!context.ok()) {
    log_error("the TLS certificate stays as it was: {}", message(context.status()));
    return;
  }
  log_info("TLS certificate read from {}", options_.server_cert);
  std::lock_guard lock(mutex_);
  context_ = *std::move(context);
}

SSL* TlsContext::new_connection() {
  reload_if_changed();
  std::lock_guard lock(mutex_);
  return SSL_new(context_.get());
}

TlsStream::TlsStream(TlsContext& context)
    : ssl_(context.new_connection()), in_(BIO_new(BIO_s_mem())), out_(BIO_new(BIO_s_mem())) {
  if (ssl_ == nullptr || in_ == nullptr || out_ == nullptr) throw std::bad_alloc();
  SSL_set_bio(ssl_.get(), in_, out_);
  SSL_set_accept_state(ssl_.get());
}

bool TlsStream::receive(std::string_view bytes, std::string& plain) {
  ERR_clear_error();
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kRecord))) {
    const std::string_view piece = bytes.substr(0, kRecord);
    BIO_write(in_, piece.data(), static_cast<int>(piece.size()));
    for (;;) {
      const size_t before = plain.size();
      plain.resize(before + kRecord);
      size_t n = 0;
      const int done = SSL_read_ex(ssl_.get(), plain.data() + before, kRecord, &n);
      plain.resize(before + n);
      if (done == 1) continue;
      const bool needs_more = SSL_get_error(ssl_.get(), done) == SSL_ERROR_WANT_READ;
      ERR_clear_error();
      if (!needs_more || BIO_ctrl_pending(out_) > kMaxUntaken) return false;
      break;
    }
  }
  return true;
}

bool TlsStream::is_ready() const { return SSL_is_init_finished(ssl_.get()) == 1; }

void TlsStream::send(std::string_view plain, std::string& out) {
  for (; !plain.empty(); plain.remove_prefix(std::min(plain.size(), kRecord))) {
    size_t n = 0;  // a memory BIO accepts everything
    SSL_write_ex(ssl_.get(), plain.data(), std::min(plain.size(), kRecord), &n);
    take(out);
  }
}

void TlsStream::shut() {
  if (is_ready()) SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

void TlsStream::take(std::string& out) {
  const size_t size = BIO_ctrl_pending(out_);
  const size_t before = out.size();
  out.resize(before + size);
  const int n = BIO_read(out_, out.data() + before, static_cast<int>(size));
  out.resize(before + static_cast<size_t>(std::max(n, 0)));
}

}  // namespace nereid::front
