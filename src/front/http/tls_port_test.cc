// HTTP inside TLS over real sockets, with OpenSSL's client.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "front/http/listener.h"
#include "front/http/self_signed.h"
#include "front/http/tls.h"

namespace nereid::front {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class TlsPortTest : public testing::Test {
 protected:
  ~TlsPortTest() override {
    listener_.reset();
    std::filesystem::remove_all(dir_);
  }

  static std::filesystem::path make_dir() {
    std::string name = (std::filesystem::temp_directory_path() / "nereid-tls-XXXXXX").string();
    return mkdtemp(name.data());
  }

  void start(ListenerOptions options = {}) {
    options.host = "127.0.0.1";
    options.tls = *TlsContext::create(
        {.enabled = true, .server_cert = server_.cert, .server_key = server_.key, .flags = "http"},
        kAlpnHttp);
    Router router([](ErrorShape, int status, std::string_view message) {
      return Response{status, "text/plain", {}, std::string(message)};
    });
    const RouteTraits open = {Api::kMetadata, Access::kAnybody, Cost::kNothing,
                              ErrorShape::kKserve};
    router.add("POST", "/echo", open, [](const ExchangePtr& x) {
      x->send({200, "text/plain", {}, x->request().body});
    });
    router.add("GET", "/stream", open, [this](const ExchangePtr& x) {
      x->begin_stream({200, "text/plain", {}, ""});
      teller_ = std::thread([x] {
        for (int i = 0; i < 100; ++i) {
          x->deliver([x, i] { x->write(std::to_string(i) + ";"); });
        }
        x->post([x] { x->end(); });
      });
    });
    router.add("GET", "/hold", open, [this](const ExchangePtr& x) {
      x->on_disconnect([this] { disconnected_ = true; });
      held_ = x;
    });
    auto listener = Listener::start(threads_, options, std::move(router));
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
  }

  const std::filesystem::path dir_ = make_dir();
  const SelfSigned server_{dir_, "server"};
  std::thread teller_;
  ExchangePtr held_;
  std::atomic<bool> disconnected_{false};
  IoThreads threads_{2};
  std::unique_ptr<Listener> listener_;
};

// A blocking client; plain without `root`.
class TlsClient {
 public:
  explicit TlsClient(int port, const std::string& root = "", std::string_view protocols = "")
      : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    timeval limit{60, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    if (root.empty()) return;
    context_ = SSL_CTX_new(TLS_client_method());
    SSL_CTX_load_verify_file(context_, root.c_str());
    SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    ssl_ = SSL_new(context_);
    if (!protocols.empty()) {
      SSL_set_alpn_protos(ssl_, reinterpret_cast<const unsigned char*>(protocols.data()),
                          static_cast<unsigned>(protocols.size()));
    }
    SSL_set_fd(ssl_, fd_);
    is_connected_ = SSL_connect(ssl_) == 1;
  }
  ~TlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
    close(fd_);
  }
  bool is_connected() const { return is_connected_; }
  void send(std::string_view text) {
    ssl_ ? SSL_write(ssl_, text.data(), static_cast<int>(text.size()))
         : static_cast<int>(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL));
  }
  // Reads until `until` was seen or the server has ended the connection.
  std::string read(std::string_view until = "") {
    std::string out;
    char buffer[16384];
    while (until.empty() || out.find(until) == out.npos) {
      const ssize_t n =
          ssl_ ? SSL_read(ssl_, buffer, sizeof buffer) : recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) break;
      out.append(buffer, static_cast<size_t>(n));
    }
    return out;
  }
  // The server has sent close_notify.
  bool is_closed_well() const { return (SSL_get_shutdown(ssl_) & SSL_RECEIVED_SHUTDOWN) != 0; }
  SSL* ssl() { return ssl_; }

 private:
  int fd_;
  SSL_CTX* context_ = nullptr;
  SSL* ssl_ = nullptr;
  bool is_connected_ = false;
};

std::string post_of(std::string_view body) {
  return fmt::format("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{}", body.size(),
                     body);
}

TEST_F(TlsPortTest, RequestsAndAnswersOfAnySize) {
  start();
  TlsClient client(listener_->port(), server_.cert);
  ASSERT_TRUE(client.is_connected());
  for (const size_t size : {size_t{0}, size_t{5}, size_t{20000}, size_t{5000000}}) {
    const std::string body(size, 'x');
    // One thread, since OpenSSL's connections are not thread safe. The echo begins
    // when all has arrived.
    client.send(post_of(body + "!"));
    const std::string answer = client.read("!");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
    EXPECT_TRUE(answer.ends_with("\r\n\r\n" + body + "!")) << size;
  }
}

TEST_F(TlsPortTest, StreamsAndPipelinedRequests) {
  start();
  TlsClient client(listener_->port(), server_.cert, "\x08http/1.1");
  client.send("GET /stream HTTP/1.1\r\nHost: t\r\n\r\n" + post_of("next"));
  const std::string answer = client.read("next");
  EXPECT_THAT(answer, HasSubstr("3\r\n98;\r\n3\r\n99;\r\n0\r\n\r\nHTTP/1.1 200"));
  teller_.join();
}

TEST_F(TlsPortTest, TheEndIsSaid) {
  start();
  TlsClient client(listener_->port(), server_.cert);
  client.send("POST /echo HTTP/1.0\r\nContent-Length: 3\r\n\r\nend");
  EXPECT_THAT(client.read(), EndsWith("end"));
  EXPECT_TRUE(client.is_closed_well());
  TlsClient bad(listener_->port(), server_.cert);
  bad.send("nonsense\r\n\r\n");
  EXPECT_THAT(bad.read(), StartsWith("HTTP/1.1 400"));
  EXPECT_TRUE(bad.is_closed_well());
}

TEST_F(TlsPortTest, AClientThatLeavesIsNoticed) {
  start();
  auto client = std::make_unique<TlsClient>(listener_->port(), server_.cert);
  client->send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
  SSL_shutdown(client->ssl());
  for (int i = 0; i < 60000 && !disconnected_; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(disconnected_);
  held_.reset();
}

TEST_F(TlsPortTest, WhoSpeaksSomethingElseIsClosed) {
  start();
  TlsClient plain(listener_->port());
  plain.send(post_of("x"));
  EXPECT_THAT(plain.read(), testing::Not(HasSubstr("HTTP")));
  TlsClient other(listener_->port(), server_.cert, "\2h2");
  EXPECT_FALSE(other.is_connected());
}

TEST_F(TlsPortTest, AHandshakeThatDoesNotComeIsClosed) {
  ListenerOptions options;
  options.idle_timeout = std::chrono::hours(1);
  options.header_timeout = std::chrono::milliseconds(50);
  start(options);
  TlsClient silent(listener_->port());
  EXPECT_EQ(silent.read(), "");  // within the client's minute
}

TEST_F(TlsPortTest, NewConnectionsSeeANewCertificate) {
  start();
  TlsClient before(listener_->port(), server_.cert);
  ASSERT_TRUE(before.is_connected());
  const SelfSigned next(dir_, "next");
  const auto replace = [](const std::string& from, const std::string& to) {
    std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing);
  };
  replace(next.cert, server_.cert);
  // The key does not match yet: the old pair stays. Files are checked once a second.
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  EXPECT_FALSE(TlsClient(listener_->port(), next.cert).is_connected());
  replace(next.key, server_.key);
  bool is_new = false;
  for (int i = 0; i < 600 && !is_new; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    is_new = TlsClient(listener_->port(), next.cert).is_connected();
  }
  EXPECT_TRUE(is_new);
  before.send(post_of("still!"));
  EXPECT_THAT(before.read("!"), EndsWith("still!"));
}

}  // namespace
}  // namespace nereid::front
