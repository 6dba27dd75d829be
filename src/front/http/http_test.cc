// The transport over real sockets: framing, limits, timeouts, draining.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <thread>

#include "base/log.h"
#include "front/http/http_fixture.h"

namespace nereid::front {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const char kHello[] = "GET /hello?a=1 HTTP/1.1\r\nHost: a\r\n\r\n";

TEST_F(HttpTest, AnswersAndKeepsAlive) {
  start();
  Client c(listener_->port());
  for (int i = 0; i < 3; ++i) {
    c.send(kHello);
    const std::string r = c.read("hi?a=1");
    EXPECT_TRUE(r.starts_with("HTTP/1.1 200 OK\r\n")) << r;
    EXPECT_NE(r.find("Content-Length: 6\r\n"), std::string::npos) << r;
  }
}

TEST_F(HttpTest, RequestsAreLoggedWhereDebugMessagesAre) {
  start();
  const auto logged = [this](spdlog::level::level_enum level) {
    const auto before = spdlog::get_level();
    testing::internal::CaptureStdout();
    spdlog::set_level(level);
    Client c(listener_->port());
    c.send(kHello);
    EXPECT_THAT(c.read("hi?a=1"), StartsWith("HTTP/1.1 200"));
    spdlog::set_level(before);
    spdlog::default_logger()->flush();
    return testing::internal::GetCapturedStdout();
  };
  EXPECT_THAT(logged(spdlog::level::debug), HasSubstr("HTTP request: GET /hello\n"));
  EXPECT_EQ(logged(spdlog::level::info), "");
}

TEST_F(HttpTest, PipelinedRequestsAreAnsweredInOrder) {
  start();
  Client c(listener_->port());
  std::string all;
  for (int i = 0; i < 20; ++i) {
    all += "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\n" + std::to_string(100 + i);
  }
  c.send(all + "GET /hello HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
  const std::string r = c.read();
  size_t at = 0;
  for (int i = 0; i < 20; ++i) {
    at = r.find("\r\n\r\n" + std::to_string(100 + i), at);
    ASSERT_NE(at, std::string::npos) << i;
  }
  EXPECT_NE(r.find("hi?", at), std::string::npos);
}

TEST_F(HttpTest, OneByteAtATime) {
  start();
  Client c(listener_->port());
  for (const char ch :
       std::string("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
                   "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")) {
    c.send(std::string_view(&ch, 1));
  }
  EXPECT_TRUE(c.read("abc").ends_with("abc"));
}

TEST_F(HttpTest, AValueMayEndInABlank) {
  start();
  Client client(listener_->port());
  client.send("GET /note HTTP/1.1\r\nX-Note: \t this\\ \r\nHost: t\r\n\r\n");
  EXPECT_THAT(client.read("]"), HasSubstr("[this\\ ]"));
  client.send("GET /note HTTP/1.1\r\nX-Note:  \r\nHost: t \r\n\r\n");
  EXPECT_THAT(client.read("]"), HasSubstr("[]"));
}

TEST_F(HttpTest, Http10AbsoluteUrlMissingHostAndHead) {
  start();
  {
    Client c(listener_->port());
    c.send("GET http://localhost/hello HTTP/1.0\r\n\r\n");
    const std::string r = c.read();
    EXPECT_TRUE(r.starts_with("HTTP/1.0 200")) << r;
    EXPECT_TRUE(r.ends_with("hi?")) << r;
  }
  Client c(listener_->port());
  c.send("HEAD /hello HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
  const std::string r = c.read();
  EXPECT_NE(r.find("Content-Length: 3"), std::string::npos) << r;
  EXPECT_TRUE(r.ends_with("\r\n\r\n")) << r;
}

TEST_F(HttpTest, StreamsInChunks) {
  start();
  Client c(listener_->port());
  c.send("GET /stream HTTP/1.1\r\nHost: t\r\n\r\n");
  const std::string r = c.read("0\r\n\r\n");
  EXPECT_NE(r.find("Transfer-Encoding: chunked"), std::string::npos);
  EXPECT_NE(r.find("3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"), std::string::npos) << r;
  c.send(kHello);
  EXPECT_NE(c.read("hi?a=1").find("200 OK"), std::string::npos);
}

// The next request often arrives while the connection still waits for a disconnect.
TEST_F(HttpTest, KeptConnectionsAnswerAfterEveryStream) {
  start();
  Client c(listener_->port());
  for (int i = 0; i < 2000; ++i) {
    c.send("GET /stream HTTP/1.1\r\nHost: t\r\n\r\n");
    ASSERT_TRUE(c.read("0\r\n\r\n").ends_with("0\r\n\r\n")) << "stream " << i;
  }
}

TEST_F(HttpTest, HalfClosedClientStillGetsAnImmediateAnswer) {
  start();
  Client c(listener_->port());
  c.send(kHello);
  c.half_close();
  EXPECT_TRUE(c.read().ends_with("hi?a=1"));
}

TEST_F(HttpTest, MalformedRequestsGet400) {
  start();
  for (const char* bad :
       {"hello\r\n\r\n", "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: abc\r\n\r\n{}",
        "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: -5\r\n\r\n{}",
        "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "GET /he llo HTTP/1.1\r\nHost: t\r\n\r\n"}) {
    Client c(listener_->port());
    c.send(bad);
    EXPECT_TRUE(c.read().starts_with("HTTP/1.1 400")) << bad;
  }
}

// Source: RFC 9112, section 3.2. A missing Host is accepted, as in the stock server.
TEST_F(HttpTest, OneHostAtMost) {
  start();
  const auto ask = [this](const char* text) {
    Client c(listener_->port());
    c.send(text);
    return c.read().substr(9, 3);
  };
  EXPECT_EQ(ask("GET /hello HTTP/1.1\r\nConnection: close\r\n\r\n"), "200");
  EXPECT_EQ(ask("GET http://t/hello HTTP/1.1\r\nConnection: close\r\n\r\n"), "200");
  EXPECT_EQ(ask("GET /hello HTTP/1.1\r\nHost: t\r\nHost: t\r\n\r\n"), "400");
  EXPECT_EQ(ask("GET /hello HTTP/1.0\r\n\r\n"), "200");
  EXPECT_EQ(ask("GET /hello HTTP/1.1\r\nhost: t\r\nConnection: close\r\n\r\n"), "200");
}

TEST_F(HttpTest, FoldedLinesAndNulBytesInHeadersGet400) {
  start();
  using namespace std::string_view_literals;
  for (const std::string_view bad :
       {"GET /hello HTTP/1.1\r\nHost: t\r\nX: a\r\n b\r\n\r\n"sv,
        "GET /hello HTTP/1.1\r\nHost: t\r\nX: a\r\n\tb\r\n\r\n"sv,
        "GET /hello HTTP/1.1\r\nHost: t\r\nX: a\r\n \r\nY: b\r\n\r\n"sv,
        "GET /hello HTTP/1.1\r\n X: a\r\nHost: t\r\n\r\n"sv,
        "GET /hello HTTP/1.1\r\nHost: t\r\nX\0Y: a\r\n\r\n"sv,
        "GET /hello HTTP/1.1\r\n\0X: a\r\nHost: t\r\n\r\n"sv,
        "GET /hello HTTP/1.1\r\nHost: t\r\nX: a\0b\r\n\r\n"sv,
        "GET /hello\0 HTTP/1.1\r\nHost: t\r\n\r\n"sv}) {
    Client whole(listener_->port());
    whole.send(bad);
    EXPECT_THAT(whole.read(), StartsWith("HTTP/1.1 400")) << bad;
    Client slow(listener_->port());
    for (const char& c : bad) slow.send({&c, 1});
    EXPECT_THAT(slow.read(), StartsWith("HTTP/1.1 400")) << bad;
  }
  // A body may look like a folded line.
  for (const bool is_slow : {false, true}) {
    const std::string_view text =
        "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 7\r\n\r\n a\r\n b!";
    Client c(listener_->port());
    for (size_t i = 0; i < text.size(); i += is_slow ? 1 : text.size()) {
      c.send(text.substr(i, is_slow ? 1 : text.size()));
    }
    EXPECT_THAT(c.read("b!"), StartsWith("HTTP/1.1 200"));
  }
}

TEST_F(HttpTest, LimitsOnHeaderAndBody) {
  ListenerOptions options = patient();
  options.max_body_bytes = 1000;
  start(options);
  {
    Client c(listener_->port());
    c.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 1001\r\n\r\n");
    const std::string r = c.read();
    EXPECT_TRUE(r.starts_with("HTTP/1.1 413")) << r;
    EXPECT_NE(r.find("1000 bytes"), std::string::npos);
  }
  {
    Client c(listener_->port());
    c.send("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" +
           std::string(1001, 'x') + "\r\n0\r\n\r\n");
    EXPECT_TRUE(c.read().starts_with("HTTP/1.1 413"));
  }
  {
    Client c(listener_->port());
    c.send("GET /hello HTTP/1.1\r\nHost: t\r\nX: " + std::string(70000, 'y') + "\r\n\r\n");
    EXPECT_TRUE(c.read().starts_with("HTTP/1.1 431"));
  }
  Client c(listener_->port());
  c.send("POST /echo HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_TRUE(c.read("\r\n\r\n").starts_with("HTTP/1.1 100 Continue"));
  c.send("ok");
  EXPECT_TRUE(c.read("ok").ends_with("ok"));
}

TEST_F(HttpTest, HeadersMustComeInTime) {
  ListenerOptions options = patient();
  options.header_timeout = milliseconds(200);
  start(options);
  Client slow(listener_->port());
  slow.send("GET /hel");
  EXPECT_THAT(slow.read(), StartsWith("HTTP/1.1 408"));
}

TEST_F(HttpTest, IdleConnectionsAreClosed) {
  ListenerOptions options = patient();
  options.idle_timeout = milliseconds(200);
  start(options);
  Client idle(listener_->port());
  EXPECT_EQ(idle.read(), "");
}

TEST_F(HttpTest, BodiesMustKeepComing) {
  ListenerOptions options = patient();
  options.body_timeout = milliseconds(300);
  start(options);
  // Bytes that arrive one by one do not count, however many are declared or, with chunks, allowed.
  const auto trickle = [&](std::string_view head, std::string_view piece) {
    Client c(listener_->port());
    c.send(head);
    for (int i = 0; i < 1200; ++i) {
      c.send(piece);
      const std::string got = c.read("\r\n", /*timeout_ms=*/50);
      if (got != "<timeout>") return got;
    }
    return std::string("still connected");
  };
  EXPECT_THAT(
      trickle("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n"),
      HasSubstr("HTTP/1.1 408"));
  EXPECT_THAT(trickle("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 10000000\r\n\r\n", "x"),
              HasSubstr("HTTP/1.1 408"));
}

TEST_F(OneThreadHttpTest, BytesOfABodyBuyTime) {
  ListenerOptions options = patient();
  options.body_timeout = milliseconds(300);
  start(options);
  // The server does not read until the kernel's buffers are full: it never waits
  // for the first bytes.
  Client blocker(listener_->port());
  blocker.send("GET /block HTTP/1.1\r\nHost: t\r\n\r\n");
  ASSERT_NE(wait_held(), nullptr);
  Client c(listener_->port());
  const std::string text = "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 4000001\r\n\r\n" +
                           std::string(4000000, 'x');
  const std::string_view rest = c.send_at_once(text);
  gate_.count_down();
  c.send(rest);
  // They may take a minute more.
  EXPECT_EQ(c.read("\r\n", 600), "<timeout>");
  c.send("y");
  EXPECT_THAT(c.read("y"), HasSubstr("200 OK"));
}

TEST_F(OneThreadHttpTest, AnEventWithoutInputClosesNothing) {
  start();
  Client first(listener_->port()), second(listener_->port()), blocker(listener_->port());
  for (Client* c : {&first, &second}) {
    c->send(kHello);
    EXPECT_THAT(c->read("hi?a=1"), HasSubstr("200 OK"));
  }
  // The event loop sees both events at once, and is kept from the second connection's input
  // until that is closed.
  blocker.send("GET /block HTTP/1.1\r\nHost: t\r\n\r\n");
  ASSERT_NE(wait_held(), nullptr);
  first.send("GET /block_again HTTP/1.1\r\nHost: t\r\n\r\n");
  second.send("x");
  gate_.count_down();
  ASSERT_NE(wait_held(), nullptr);
  EXPECT_TRUE(second.steal_byte());
  gate_again_.count_down();
  second.send(kHello);
  EXPECT_THAT(second.read("hi?a=1"), HasSubstr("200 OK"));
}

TEST_F(OneThreadHttpTest, AClientThatSendsWithoutABreakHoldsUpNobody) {
  constexpr size_t kLong = 2 << 20;
  const auto post = [](size_t size) {
    return fmt::format("POST /order HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{}", size,
                       std::string(size, 'x'));
  };
  start();
  Client first(listener_->port()), second(listener_->port()), blocker(listener_->port());
  for (Client* c : {&first, &second}) {
    c->send(kHello);
    EXPECT_THAT(c->read("hi?a=1"), HasSubstr("200 OK"));
  }
  // When the event loop continues, more of the long body is there than it reads in a turn.
  blocker.send("GET /block HTTP/1.1\r\nHost: t\r\n\r\n");
  ASSERT_NE(wait_held(), nullptr);
  std::thread sender([&] { first.send(post(kLong)); });
  first.wait_arrived();
  second.send(post(1));
  second.wait_arrived();
  gate_.count_down();
  sender.join();
  EXPECT_THAT(second.read("done"), HasSubstr("200 OK"));
  EXPECT_THAT(first.read("done"), HasSubstr("200 OK"));
  EXPECT_THAT(take_body_sizes(), ElementsAre(1, kLong));

  // The same for pipelined requests.
  Client again(listener_->port());
  again.send("GET /block_again HTTP/1.1\r\nHost: t\r\n\r\n");
  ASSERT_NE(wait_held(), nullptr);
  first.send(post(2) + post(3) + kHello);
  first.wait_arrived();
  second.send(post(1));
  second.wait_arrived();
  gate_again_.count_down();
  EXPECT_THAT(second.read("done"), HasSubstr("200 OK"));
  EXPECT_THAT(first.read("hi?a=1"), HasSubstr("200 OK"));
  EXPECT_THAT(take_body_sizes(), ElementsAre(2, 1, 3));
}

TEST_F(HttpTest, DroppedExchangeIs500) {
  start();
  Client c(listener_->port());
  c.send("GET /drop HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(c.read().starts_with("HTTP/1.1 500"));
}

// Wherever the full budget is found.
TEST_F(HttpTest, AShortageOfMemoryIs503) {
  start();
  for (const char* where : {"here", "later", "worker"}) {
    Client c(listener_->port());
    c.send(fmt::format("GET /lack/{} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n", where));
    const std::string reply = c.read();
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 503")) << where;
    EXPECT_THAT(reply, HasSubstr("no room")) << where;
  }
}

TEST_F(HttpTest, APortMayBeShared) {
  ListenerOptions options = patient();
  options.host = "127.0.0.1";
  const auto listen = [&] { return Listener::start(threads_, options, Router(nullptr)); };
  options.reuse_port = true;
  const auto first = listen();
  ASSERT_TRUE(first.ok());
  options.port = (*first)->port();
  EXPECT_TRUE(listen().ok());
  options.reuse_port = false;
  EXPECT_TRUE(absl::IsUnavailable(listen().status()));
}

TEST_F(HttpTest, TooManyConnectionsGet503) {
  ListenerOptions options = patient();
  options.max_connections = 2;
  start(options);
  Client a(listener_->port());
  Client b(listener_->port());
  a.send(kHello);
  a.read("hi?a=1");
  b.send(kHello);
  b.read("hi?a=1");
  Client c(listener_->port());
  EXPECT_TRUE(c.read().starts_with("HTTP/1.1 503"));
}

TEST_F(HttpTest, StopLetsARunningAnswerFinish) {
  start();
  const int port = listener_->port();
  Client idle(port);
  Client busy(port);
  busy.send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
  ExchangePtr x = wait_held();
  ASSERT_NE(x, nullptr);
  listener_->begin_stop();
  EXPECT_EQ(idle.read(), "");
  EXPECT_FALSE(listener_->wait_drained(milliseconds(100)));
  wait_closed(port);
  x->post([x] { x->send({200, "text/plain", {}, "done"}); });
  x.reset();
  const std::string r = busy.read();
  EXPECT_TRUE(r.ends_with("done")) << r;
  EXPECT_NE(r.find("Connection: close"), std::string::npos);
  EXPECT_TRUE(listener_->wait_drained(milliseconds(60000)));
}

TEST_F(HttpTest, AbortDisconnectsWhatIsLeft) {
  start();
  Client busy(listener_->port());
  busy.send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
  ExchangePtr x = wait_held();
  ASSERT_NE(x, nullptr);
  listener_->begin_stop();
  listener_->abort_all();
  EXPECT_TRUE(wait_disconnected());
}

TEST_F(HttpTest, BusyPortIsAnError) {
  start();
  ListenerOptions options;
  options.host = "127.0.0.1";
  options.port = listener_->port();
  auto second = Listener::start(threads_, options, Router([](ErrorShape, int s, std::string_view) {
                                  return Response{s, "", {}, ""};
                                }));
  ASSERT_FALSE(second.ok());
  EXPECT_NE(message(second.status()).find("already in use"), std::string_view::npos);
}

}  // namespace
}  // namespace nereid::front
