// Streams over real sockets: the order of their pieces, clients that leave or do not read.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "base/clock.h"

#include "front/http/http_fixture.h"

namespace nereid::front {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(HttpTest, DisconnectReachesTheHandler) {
  start();
  Client c(listener_->port());
  c.send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
  ExchangePtr x = wait_held();
  ASSERT_NE(x, nullptr);
  c.close();
  EXPECT_TRUE(wait_disconnected());
  EXPECT_EQ(listener_->stats().disconnects.load(), 1u);
}

TEST_F(HttpTest, DisconnectInMidStreamReachesTheHandler) {
  start();
  Client c(listener_->port());
  c.send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
  ExchangePtr x = wait_held();
  ASSERT_NE(x, nullptr);
  x->post([x] {
    x->begin_stream({200, "text/plain", {}, ""});
    x->write("first");
  });
  c.read("first");
  EXPECT_FALSE(is_disconnected());
  c.close();
  EXPECT_TRUE(wait_disconnected());
}

// Sends an echo request, and reads the answer through a small buffer.
class SlowReader {
 public:
  SlowReader(int port, const std::string& body) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const int size = 16 << 10;
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    const std::string text =
        "POST /echo HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body;
    for (size_t at = 0; at < text.size();) {
      const ssize_t n = ::send(fd_, text.data() + at, text.size() - at, MSG_NOSIGNAL);
      if (n <= 0) break;
      at += static_cast<size_t>(n);
    }
  }
  ~SlowReader() { ::close(fd_); }
  SlowReader(const SlowReader&) = delete;
  SlowReader& operator=(const SlowReader&) = delete;

  // 0: the end.
  size_t read(size_t size) {
    std::string part(size, '\0');
    return static_cast<size_t>(std::max<ssize_t>(::recv(fd_, part.data(), size, 0), 0));
  }

 private:
  const int fd_;
};

// The text of the chunks.
std::string unchunked(std::string_view answer) {
  std::string out;
  answer.remove_prefix(answer.find("\r\n\r\n") + 4);
  for (;;) {
    const size_t size = std::stoul(std::string(answer.substr(0, answer.find("\r\n"))), nullptr, 16);
    answer.remove_prefix(answer.find("\r\n") + 2);
    out += answer.substr(0, size);
    EXPECT_EQ(answer.substr(size, 2), "\r\n");
    answer.remove_prefix(size + 2);
    if (size == 0) return out;
  }
}

// All ways of writing from one thread, to a reader that is fast or has the kernel's buffers full.
TEST_F(HttpTest, PiecesKeepTheirOrder) {
  start();
  for (const size_t size : {size_t{10}, size_t{40000}}) {
    Client c(listener_->port());
    c.send("GET /open HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    ExchangePtr x = wait_held();
    std::string all;
    std::atomic<int> num_here{0};
    std::thread sender([&] {
      // Small pieces, until the connection has waited for one.
      for (int i = 0; i < 150 || (size < 1000 && num_here == 0 && i < 60000); ++i) {
        const std::string piece(size + i, static_cast<char>('a' + i % 26));
        all += piece;
        const auto work = [&num_here, x, piece, here = std::this_thread::get_id()] {
          num_here += std::this_thread::get_id() == here;
          x->write(piece.substr(0, 5));
          x->write(piece.substr(5));
        };
        i % 7 == 3 ? x->post(work) : x->deliver(work);
        if (i % 10 == 0) std::this_thread::sleep_for(milliseconds(1));
      }
      x->deliver([x] { x->end(); });
      x.reset();
    });
    if (size > 1000) sender.join();
    const std::string got = c.read();
    if (sender.joinable()) sender.join();
    EXPECT_TRUE(unchunked(got) == all);
    if (size < 1000) {
      EXPECT_GT(num_here, 0);
    }
  }
}

// The thread that has an answer sends it while the connection's event loop is busy.
TEST_F(OneThreadHttpTest, AnAnswerNeedsNoEventLoop) {
  start();
  Client c(listener_->port());
  c.send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
  ExchangePtr x = wait_held();
  ASSERT_NE(x, nullptr);
  Client busy(listener_->port());
  busy.send("GET /block HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
  ExchangePtr blocked = wait_held();
  ASSERT_NE(blocked, nullptr);
  x->deliver([x] {
    x->begin_stream({200, "text/plain", {}, ""});
    x->write("all");
    x->write(" of it");
    x->end();
  });
  const std::string got = c.read("0\r\n\r\n");
  EXPECT_THAT(got, StartsWith("HTTP/1.1 200 OK"));
  EXPECT_EQ(unchunked(got), "all of it");
  gate_.count_down();
  blocked->post([blocked] { blocked->send({200, "text/plain", {}, "free"}); });
  EXPECT_THAT(busy.read(), HasSubstr("free"));
  x.reset();
  c.send("GET /hello HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_THAT(c.read("hi?"), HasSubstr("200 OK"));
}

TEST_F(HttpTest, PiecesForAClientThatHasGone) {
  start();
  for (int i = 0; i < 20; ++i) {
    Client c(listener_->port());
    c.send("GET /open HTTP/1.1\r\nHost: t\r\n\r\n");
    ExchangePtr x = wait_held();
    c.read("\r\n\r\n");
    std::thread closer([&] { c.close(); });
    for (int k = 0; k < 200; ++k) x->deliver([x] { x->write("piece"); });
    closer.join();
    EXPECT_TRUE(wait_disconnected());
    std::lock_guard lock(mutex_);
    disconnected_ = false;
  }
}

TEST_F(HttpTest, ReaderThatDoesNotReadIsDropped) {
  ListenerOptions options = patient();
  options.max_unread_bytes = 1 << 20;
  start(options);
  Client c(listener_->port());
  c.send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
  ExchangePtr x = wait_held();
  ASSERT_NE(x, nullptr);
  x->post([x] { x->begin_stream({200, "text/plain", {}, ""}); });
  for (int i = 0; i < 200; ++i) {
    x->post([x] { x->write(std::string(100000, 'z')); });
  }
  EXPECT_TRUE(wait_disconnected());
}

// The time limit is for each part of an answer, not for the whole.
TEST_F(HttpTest, ASlowReaderGetsAllOfIt) {
  ListenerOptions options = patient();
  options.write_timeout = milliseconds(1000);
  start(options);
  const std::string body(5 << 20, 'z');
  SlowReader reader(listener_->port(), body);
  size_t got = 0;
  const Time begin = now();
  while (const size_t n = reader.read(64 << 10)) {
    got += n;
    std::this_thread::sleep_for(milliseconds(5));  // some seconds in all
  }
  EXPECT_GE(got, body.size());
  EXPECT_GT(now() - begin, options.write_timeout);
}

TEST_F(HttpTest, AReaderThatTricklesIsCut) {
  ListenerOptions options = patient();
  options.write_timeout = milliseconds(200);
  start(options);
  const std::string body(16 << 20, 'z');
  SlowReader reader(listener_->port(), body);
  size_t got = 0;
  const Time begin = now();
  while (const size_t n = reader.read(now() - begin < std::chrono::seconds(1) ? 100 : 1 << 20)) {
    got += n;
    if (n <= 100) std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_LT(got, body.size());
}

}  // namespace
}  // namespace nereid::front
