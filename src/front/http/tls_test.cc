// The server's end of TLS against OpenSSL's client, in memory.
#include "front/http/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "front/http/self_signed.h"

namespace nereid::front {
namespace {

using testing::HasSubstr;

class Tls : public testing::Test {
 protected:
  Tls() {
    options_.enabled = true;
    options_.flags = "grpc";
    options_.server_cert = server_.cert;
    options_.server_key = server_.key;
    options_.root_cert = client_.cert;
  }
  ~Tls() override { std::filesystem::remove_all(dir_); }

  static std::filesystem::path make_dir() {
    std::string name = (std::filesystem::temp_directory_path() / "nereid-tls-XXXXXX").string();
    return mkdtemp(name.data());
  }

  std::string error() {
    return std::string(message(TlsContext::create(options_, kAlpnGrpc).status()));
  }

  const std::filesystem::path dir_ = make_dir();
  const SelfSigned server_{dir_, "server"}, client_{dir_, "client"};
  TlsOptions options_;
};

// A client and the stream under test, with the wire between them.
class Talk {
 public:
  Talk(const TlsOptions& options, const std::string& root, const SelfSigned* own = nullptr,
       std::string_view protocols = "\2h2")
      : stream_(**TlsContext::create(options, kAlpnGrpc)),
        context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_load_verify_file(context_, root.c_str());
    SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    if (own != nullptr) {
      SSL_CTX_use_certificate_chain_file(context_, own->cert.c_str());
      SSL_CTX_use_PrivateKey_file(context_, own->key.c_str(), SSL_FILETYPE_PEM);
    }
    ssl_ = SSL_new(context_);
    SSL_set_alpn_protos(ssl_, reinterpret_cast<const unsigned char*>(protocols.data()),
                        static_cast<unsigned>(protocols.size()));
    in_ = BIO_new(BIO_s_mem());
    out_ = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl_, in_, out_);
    SSL_set_connect_state(ssl_);
  }
  ~Talk() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }

  // Moves bytes both ways until there are none; false when the server gave up.
  bool pump(size_t piece = 1 << 16) {
    for (;;) {
      if (!SSL_is_init_finished(ssl_)) SSL_do_handshake(ssl_);
      std::string to_server(BIO_ctrl_pending(out_), '\0'), to_client;
      BIO_read(out_, to_server.data(), static_cast<int>(to_server.size()));
      for (size_t at = 0; at < to_server.size(); at += piece) {
        if (!stream_.receive(std::string_view(to_server).substr(at, piece), at_server))
          return false;
      }
      stream_.take(to_client);
      BIO_write(in_, to_client.data(), static_cast<int>(to_client.size()));
      char buffer[4096];
      size_t n = 0;
      while (SSL_read_ex(ssl_, buffer, sizeof buffer, &n) == 1) at_client.append(buffer, n);
      if (to_server.empty() && to_client.empty()) return true;
    }
  }
  void say(std::string_view text) {
    size_t n = 0;
    SSL_write_ex(ssl_, text.data(), text.size(), &n);
  }
  void send(std::string_view text) {
    std::string bytes;
    stream_.send(text, bytes);
    BIO_write(in_, bytes.data(), static_cast<int>(bytes.size()));
  }
  SSL* ssl() { return ssl_; }
  TlsStream& stream() { return stream_; }
  bool is_over() const { return (SSL_get_shutdown(ssl_) & SSL_RECEIVED_SHUTDOWN) != 0; }

  std::string at_server, at_client;

 private:
  TlsStream stream_;
  SSL_CTX* context_;
  SSL* ssl_;
  BIO *in_, *out_;
};

TEST_F(Tls, CarriesBytesBothWays) {
  for (const size_t piece : {size_t{1}, size_t{1000}, size_t{1} << 16}) {
    Talk talk(options_, server_.cert);
    EXPECT_FALSE(talk.stream().is_ready());
    ASSERT_TRUE(talk.pump(piece));
    ASSERT_TRUE(talk.stream().is_ready());
    std::string question(100000, 'q'), answer(300000, 'a');
    question += "?";
    answer += "!";
    talk.say(question);
    talk.send(answer);
    talk.send("");
    ASSERT_TRUE(talk.pump(piece));
    EXPECT_EQ(talk.at_server, question);
    EXPECT_EQ(talk.at_client, answer);
    talk.stream().shut();
    EXPECT_TRUE(talk.pump());
    EXPECT_TRUE(talk.is_over());
  }
}

TEST_F(Tls, OtherProtocolsAreRefused) {
  Talk talk(options_, server_.cert, nullptr, "\x8http/1.1");
  EXPECT_FALSE(talk.pump());
  EXPECT_FALSE(talk.stream().is_ready());
  Talk both(options_, server_.cert, nullptr, "\x8http/1.1\2h2");
  EXPECT_TRUE(both.pump());
  EXPECT_TRUE(both.stream().is_ready());
}

TEST_F(Tls, MutualNeedsTheRightCertificate) {
  options_.is_mutual = true;
  Talk without(options_, server_.cert);
  EXPECT_FALSE(without.pump());
  const SelfSigned stranger(dir_, "stranger");
  Talk wrong(options_, server_.cert, &stranger);
  EXPECT_FALSE(wrong.pump());
  Talk right(options_, server_.cert, &client_);
  EXPECT_TRUE(right.pump());
  EXPECT_TRUE(right.stream().is_ready());
}

TEST_F(Tls, NoiseEndsTheConnection) {
  TlsStream stream(**TlsContext::create(options_, kAlpnGrpc));
  std::string plain, out;
  EXPECT_FALSE(stream.receive("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", plain));
  stream.take(out);
  EXPECT_FALSE(stream.is_ready());
  EXPECT_TRUE(plain.empty());
  Talk talk(options_, server_.cert);
  ASSERT_TRUE(talk.pump());
  EXPECT_FALSE(talk.stream().receive(std::string("\x17\x03\x03\x00\x05hello", 10), plain));
}

// Each key update requests an answer; data between them resets OpenSSL's count.
TEST_F(Tls, WhoDoesNotListenMayNotAskForEver) {
  Talk talk(options_, server_.cert);
  ASSERT_TRUE(talk.pump());
  std::string plain;
  const auto ask = [&] {
    SSL_key_update(talk.ssl(), SSL_KEY_UPDATE_REQUESTED);
    talk.say("x");
    std::string bytes(BIO_ctrl_pending(SSL_get_wbio(talk.ssl())), '\0');
    BIO_read(SSL_get_wbio(talk.ssl()), bytes.data(), static_cast<int>(bytes.size()));
    return talk.stream().receive(bytes, plain);
  };
  int count = 0;
  while (count < 100000 && ask()) ++count;
  EXPECT_GT(count, 0);
  EXPECT_LT(count, 100000);
}

TEST_F(Tls, FilesThatCannotBeUsedAreNamed) {
  const TlsOptions good = options_;
  EXPECT_EQ(error(), "");
  options_.server_cert = "";
  EXPECT_EQ(error(), "--grpc-server-cert: TLS needs a file (PEM)");
  options_.server_cert = "/nonexistent";
  EXPECT_THAT(error(), HasSubstr("--grpc-server-cert: '/nonexistent' cannot be used: "));
  options_ = good;
  options_.server_key = client_.key;
  EXPECT_THAT(error(), HasSubstr("--grpc-server-key: "));
  options_.server_key = server_.cert;
  EXPECT_THAT(error(), HasSubstr("--grpc-server-key: "));
  options_ = good;
  options_.is_mutual = true;
  options_.root_cert = server_.key;
  EXPECT_THAT(error(), HasSubstr("--grpc-root-cert: "));
}

}  // namespace
}  // namespace nereid::front
