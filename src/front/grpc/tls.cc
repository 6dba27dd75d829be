// See tls.h.
#include "front/grpc/tls.h"

#include <openssl/err.h>

#include <algorithm>
#include <new>

namespace nereid::front {
namespace {

constexpr size_t kRecord = 16384;      // the largest that TLS knows
constexpr size_t kMaxUntaken = 65536;  // no handshake is longer

// The newest of OpenSSL's complaints; leaves none behind, because the queue is the thread's.
std::string tls_error() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(code);
  return reason == nullptr ? "unknown error" : reason;
}

Status bad_file(const char* option, const std::string& path) {
  if (path.empty()) return invalid_argument("{}: TLS needs a file (PEM)", option);
  return invalid_argument("{}: '{}' cannot be used: {}", option, path, tls_error());
}

// gRPC speaks HTTP/2 only; a client that offers protocols must offer it.
int select_h2(SSL*, const unsigned char** chosen, unsigned char* size, const unsigned char* offered,
              unsigned int num_offered, void*) {
  static constexpr unsigned char kH2[] = {2, 'h', '2'};
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, size, kH2, sizeof kH2, offered, num_offered) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

StatusOr<std::shared_ptr<TlsContext>> TlsContext::create(const TlsOptions& o) {
  const std::shared_ptr<TlsContext> out(new TlsContext(SSL_CTX_new(TLS_server_method())));
  SSL_CTX* context = out->get();
  if (context == nullptr) return internal_error("TLS: {}", tls_error());
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);  // idle connections keep none
  SSL_CTX_set_alpn_select_cb(context, select_h2, nullptr);
  if (SSL_CTX_use_certificate_chain_file(context, o.server_cert.c_str()) != 1) {
    return bad_file("--grpc-server-cert", o.server_cert);
  }
  if (SSL_CTX_use_PrivateKey_file(context, o.server_key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return bad_file("--grpc-server-key", o.server_key);
  }
  if (o.is_mutual) {
    STACK_OF(X509_NAME)* names = SSL_load_client_CA_file(o.root_cert.c_str());
    if (names == nullptr || SSL_CTX_load_verify_file(context, o.root_cert.c_str()) != 1) {
      sk_X509_NAME_pop_free(names, X509_NAME_free);
      return bad_file("--grpc-root-cert", o.root_cert);
    }
    SSL_CTX_set_client_CA_list(context, names);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    constexpr unsigned char kSessions[] = "grpc";
    SSL_CTX_set_session_id_context(context, kSessions, sizeof kSessions - 1);
  }
  return out;
}

TlsStream::TlsStream(std::shared_ptr<TlsContext> context)
    : context_(std::move(context)),
      ssl_(SSL_new(context_->get())),
      in_(BIO_new(BIO_s_mem())),
      out_(BIO_new(BIO_s_mem())) {
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
    size_t n = 0;  // memory takes everything
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
