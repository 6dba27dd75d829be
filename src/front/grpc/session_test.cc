// A session against an HTTP/2 client in memory: calls, streams, ends of all kinds, limits.
#include "front/grpc/session.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "front/grpc/test_client.h"
#include "front/http/compression.h"

namespace nereid::front {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string framed(const std::string& body) { return std::string(kGrpcPrefixBytes, '\0') + body; }

// Echoes; "big N" is answered with N bytes.
class EchoStream final : public StreamHandler {
 public:
  EchoStream(CallPtr call, std::vector<std::string>& seen) : call_(std::move(call)), seen_(seen) {}
  void on_message(std::string message) override {
    seen_.push_back(message);
    if (message == "pause") call_->pause(true);
    if (message.starts_with("big ")) message.assign(std::stoul(message.substr(4)), 'x');
    call_->send(framed(message));
  }
  void on_half_close() override { call_->finish(ok()); }
  void on_stop() override { call_->finish(unavailable("stopping")); }

 private:
  CallPtr call_;
  std::vector<std::string>& seen_;
};

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    shared_->methods["/t/Echo"].unary = [](const CallPtr& call, std::string message) {
      call->send(framed(message));
      call->finish(ok());
    };
    shared_->methods["/t/Fail"].unary = [](const CallPtr& call, const std::string& message) {
      call->finish(not_found("no {}", message));
    };
    shared_->methods["/t/Keep"].unary = [this](const CallPtr& call, const std::string&) {
      call->on_cancel([this] { ++num_cancelled_; });
      kept_.push_back(call);
    };
    shared_->methods["/t/Note"].unary = [](const CallPtr& call, const std::string&) {
      for (const auto& [name, value] : call->metadata()) call->send(framed(name + "=" + value));
      call->finish(ok());
    };
    shared_->methods["/t/Drop"].unary = [](const CallPtr&, const std::string&) {};
    shared_->methods["/t/Stream"].stream = [this](const CallPtr& call) {
      call->on_cancel([this] { ++num_cancelled_; });
      stream_call_ = call;
      return std::make_shared<EchoStream>(call, seen_);
    };
    shared_->methods["/t/Secret"] = shared_->methods["/t/Echo"];
    shared_->methods["/t/Secret"].required_name = "triton-grpc-protocol-admin";
    shared_->methods["/t/Secret"].required_value = "yes";
  }
  ~SessionTest() override {
    kept_.clear();
    client_.reset();
    EXPECT_EQ(shared_->stats->calls_active, 0);
    EXPECT_EQ(shared_->stats->buffered_bytes, 0u);
  }
  TestClient& client() {
    if (client_ == nullptr) client_ = std::make_unique<TestClient>(shared_);
    return *client_;
  }

  std::shared_ptr<GrpcShared> shared_ = std::make_shared<GrpcShared>();
  int num_cancelled_ = 0;
  std::vector<CallPtr> kept_;
  std::weak_ptr<Call> stream_call_;
  std::vector<std::string> seen_;
  std::unique_ptr<TestClient> client_;
};

TEST_F(SessionTest, UnaryCalls) {
  const ClientReply good = client().call("/t/Echo", "hello");
  EXPECT_EQ(good.headers.at(":status"), "200");
  EXPECT_EQ(good.headers.at("content-type"), "application/grpc");
  EXPECT_EQ(good.headers.at("grpc-status"), "0");
  EXPECT_EQ(good.messages, std::vector<std::string>{"hello"});
  EXPECT_TRUE(good.closed);
  const ClientReply bad = client().call("/t/Fail", "50% ä");
  EXPECT_EQ(bad.headers.at("grpc-status"), "5");
  EXPECT_EQ(bad.headers.at("grpc-message"), "no 50%25 %C3%A4");
  EXPECT_EQ(bad.num_statuses, 1);
  const ClientReply unknown = client().call("/t/Nope", "");
  EXPECT_EQ(unknown.headers.at("grpc-status"), "12");
  EXPECT_EQ(unknown.headers.count("grpc-message"), 0u);
  EXPECT_EQ(client().call("/t/Echo", std::string(3 << 20, 'x')).messages.at(0).size(), 3u << 20);
  EXPECT_EQ(client().call("/t/Drop", "").headers.at("grpc-status"), "13");
  EXPECT_EQ(client().call("/t/Secret", "x").headers.at("grpc-status"), "14");
  EXPECT_EQ(client()
                .call("/t/Secret", "x", {{"triton-grpc-protocol-admin", "yes"}})
                .headers.at("grpc-status"),
            "0");
}

TEST_F(SessionTest, AValueMayEndInABlank) {
  const ClientReply reply = client().call("/t/Note", "", {{"note", "this\\ "}});
  EXPECT_EQ(reply.messages, std::vector<std::string>{"note=this\\ "});
}

TEST_F(SessionTest, OneByteAtATime) {
  const int32_t id = client().open("/t/Echo");
  client().message(id, "slowly", true);
  client().pump(1);
  EXPECT_EQ(client().replies[id].messages, std::vector<std::string>{"slowly"});
}

TEST_F(SessionTest, NotGrpc) {
  const int32_t get = client().open("/t/Echo", {}, "GET");
  const int32_t html = client().open("/t/Echo", {}, "POST", "text/html");
  const int32_t like = client().open("/t/Echo", {}, "POST", "application/grpc-web");
  client().pump();
  EXPECT_EQ(client().replies[get].headers.at(":status"), "405");
  EXPECT_EQ(client().replies[html].headers.at(":status"), "415");
  EXPECT_EQ(client().replies[like].headers.at(":status"), "415");
  // Bytes that are no HTTP/2.
  Session other(shared_, client().mailbox, client().now, [] {});
  other.receive("GET / HTTP/1.1\r\nHost: x\r\n\r\n", client().now);
  std::string out;
  other.fill(out, 1 << 20);
  EXPECT_TRUE(other.is_over());
}

TEST_F(SessionTest, BrokenMessages) {
  const auto status = [&](const std::string& bytes) {
    const int32_t id = client().open("/t/Echo");
    client().write(id, bytes, true);
    client().pump();
    EXPECT_EQ(client().replies[id].num_statuses, 1);
    return client().replies[id].headers.at("grpc-status");
  };
  EXPECT_EQ(status(""), "13");                               // none
  EXPECT_EQ(status(std::string("\0\0\0", 3)), "13");         // half a prefix
  EXPECT_EQ(status(std::string("\0\0\0\0\5abc", 8)), "13");  // half a message
  EXPECT_EQ(status(std::string("\7\0\0\0\1a", 6)), "13");    // unknown flags
  EXPECT_EQ(status(std::string("\1\0\0\0\1a", 6)), "13");    // compressed, without an encoding
  EXPECT_EQ(status(std::string("\0\0\0\0\1a\0\0\0\0\1b", 12)), "13");  // two
  EXPECT_EQ(status("\x01\xff\xff\xff\xff"), "8");                      // 4 GiB
}

TEST_F(SessionTest, Compression) {
  for (const auto& [name, encoding] :
       {std::pair("gzip", Encoding::kGzip), std::pair("deflate", Encoding::kDeflate)}) {
    const int32_t id = client().open("/t/Echo", {{"grpc-encoding", name}});
    client().message(id, compress("squeezed", encoding), true, true);
    client().pump();
    EXPECT_EQ(client().replies[id].messages, std::vector<std::string>{"squeezed"});
  }
  const int32_t snappy = client().open("/t/Echo", {{"grpc-encoding", "snappy"}});
  client().pump();
  EXPECT_EQ(client().replies[snappy].headers.at("grpc-status"), "12");
  shared_->options.max_message_bytes = 1 << 20;
  const int32_t bomb = client().open("/t/Echo", {{"grpc-encoding", "gzip"}});
  client().message(bomb, compress(std::string(8 << 20, '\0'), Encoding::kGzip), true, true);
  client().pump();
  EXPECT_EQ(client().replies[bomb].headers.at("grpc-status"), "8");
}

TEST_F(SessionTest, CompressedAnswers) {
  shared_->options.response_compression_level = "high";
  const std::string text(10000, 'y');
  const ClientReply reply =
      client().call("/t/Echo", text, {{"grpc-accept-encoding", "identity,gzip"}});
  EXPECT_EQ(reply.headers.at("grpc-encoding"), "gzip");
  BudgetShare share;
  EXPECT_EQ(*decompress(reply.messages.at(0), Encoding::kGzip, 1 << 20, share), text);
  EXPECT_EQ(client().call("/t/Echo", text).messages.at(0), text);
}

TEST_F(SessionTest, Streams) {
  const int32_t id = client().open("/t/Stream");
  client().message(id, "a");
  client().pump();
  EXPECT_EQ(client().replies[id].messages, std::vector<std::string>{"a"});
  client().message(id, "b");
  client().message(id, "");
  client().pump();
  EXPECT_EQ(client().replies[id].messages.size(), 3u);
  EXPECT_FALSE(client().replies[id].closed);
  client().end(id);
  client().pump();
  EXPECT_EQ(client().replies[id].headers.at("grpc-status"), "0");
  EXPECT_TRUE(client().replies[id].closed);
}

TEST_F(SessionTest, PausedStreamsHoldTheClientUp) {
  const int32_t id = client().open("/t/Stream");
  client().message(id, "pause");
  for (int i = 0; i < 5; ++i) client().message(id, std::string(1 << 20, 'z'));
  client().message(id, "last", true);
  client().pump();
  EXPECT_EQ(seen_, std::vector<std::string>{"pause"});
  EXPECT_LE(shared_->stats->buffered_bytes, 2u << 20);  // one window
  stream_call_.lock()->pause(false);
  client().pump();
  EXPECT_EQ(seen_.size(), 7u);
  EXPECT_EQ(client().replies[id].messages.back(), "last");
  EXPECT_EQ(client().replies[id].headers.at("grpc-status"), "0");
}

TEST_F(SessionTest, Cancelling) {
  const int32_t unary = client().open("/t/Keep");
  client().message(unary, "", true);
  const int32_t stream = client().open("/t/Stream");
  client().pump();
  ASSERT_EQ(kept_.size(), 1u);
  client().reset(unary);
  EXPECT_EQ(num_cancelled_, 1);
  EXPECT_FALSE(kept_[0]->is_open());
  kept_[0]->send(framed("late"));
  kept_[0]->finish(ok());
  client().reset(stream);
  EXPECT_EQ(num_cancelled_, 2);
  EXPECT_EQ(client().call("/t/Echo", "x").messages.size(), 1u);
}

TEST_F(SessionTest, ConnectionLoss) {
  const int32_t id = client().open("/t/Keep");
  client().message(id, "", true);
  client().open("/t/Stream");
  client().open("/t/Echo");  // never sends its message
  client().pump();
  client_->server.reset();
  EXPECT_EQ(num_cancelled_, 2);
}

TEST_F(SessionTest, Deadlines) {
  const int32_t id = client().open("/t/Keep", {{"grpc-timeout", "500m"}});
  client().message(id, "", true);
  client().pump();
  client().pass(milliseconds(400));
  EXPECT_EQ(num_cancelled_, 0);
  client().pass(milliseconds(200));
  EXPECT_EQ(num_cancelled_, 1);
  EXPECT_EQ(client().replies[id].headers.at("grpc-status"), "4");
  EXPECT_EQ(client().replies[id].headers.at("grpc-message"), "Deadline Exceeded");
  kept_[0]->finish(ok());
  client().pump();
  EXPECT_EQ(client().replies[id].num_statuses, 1);
  EXPECT_EQ(client().call("/t/Echo", "x", {{"grpc-timeout", "1x"}}).headers.at("grpc-status"), "3");
}

TEST_F(SessionTest, RequestsThatDoNotArrive) {
  const int32_t id = client().open("/t/Echo");
  client().write(id, "\0\0");
  client().pump();
  client().pass(seconds(29));
  EXPECT_FALSE(client().replies[id].closed);
  client().pass(seconds(3));
  EXPECT_EQ(client().replies[id].headers.at("grpc-status"), "4");
  // A client that sends nothing.
  Session silent(shared_, client().mailbox, client().now, [] {});
  silent.tick(client().now + seconds(9));
  EXPECT_FALSE(silent.is_over());
  silent.tick(client().now + seconds(11));
  EXPECT_TRUE(silent.is_over());
}

TEST_F(SessionTest, SlowReaders) {
  shared_->options.max_unread_bytes = 1 << 20;
  client_ = std::make_unique<TestClient>(shared_, /*reads=*/false);
  const int32_t id = client().open("/t/Stream");
  for (int i = 0; i < 8; ++i) client().message(id, "big 100000");
  client().pump();
  EXPECT_FALSE(client().replies[id].closed);
  for (int i = 0; i < 8; ++i) client().message(id, "big 100000");
  client().pump();
  EXPECT_TRUE(client().replies[id].closed);
  EXPECT_EQ(client().replies[id].error_code, static_cast<uint32_t>(NGHTTP2_ENHANCE_YOUR_CALM));
  EXPECT_EQ(num_cancelled_, 1);
}

TEST_F(SessionTest, StalledAnswersAreReset) {
  const int32_t id = client().open("/t/Stream");
  client().message(id, "big 10");
  // The client reads no bytes: only the server's side advances.
  const uint8_t* data = nullptr;
  for (ssize_t n; (n = nghttp2_session_mem_send(client().h2, &data)) > 0;) {
    client().server->receive({reinterpret_cast<const char*>(data), static_cast<size_t>(n)},
                             client().now);
  }
  client().server->tick(client().now + seconds(31));
  EXPECT_EQ(num_cancelled_, 1);
  client().pump();
  EXPECT_TRUE(client().replies[id].closed);
}

TEST_F(SessionTest, TooManyStreams) {
  shared_->options.max_streams = 10;
  client().pump();
  std::vector<int32_t> ids;
  for (int i = 0; i < 20; ++i) {
    ids.push_back(client().open("/t/Keep"));
    client().message(ids.back(), "", true);
  }
  client().pump();
  EXPECT_EQ(kept_.size(), 10u);
  for (const CallPtr& call : std::exchange(kept_, {})) call->finish(ok());
  client().pump();
  EXPECT_EQ(kept_.size(), 10u);
}

TEST_F(SessionTest, HeaderFlood) {
  const int32_t id = client().open("/t/Echo", {{"x-long", std::string(20000, 'h')}});
  client().message(id, "x", true);
  client().pump();
  EXPECT_EQ(client().replies[id].headers.at("grpc-status"), "8");
}

TEST_F(SessionTest, RapidReset) {
  for (int i = 0; i < 5000 && !client().server->is_over(); ++i) {
    const int32_t id = client().open("/t/Keep");
    if (id < 0) break;
    client().message(id, "", true);
    client().pump();
    client().reset(id);
    kept_.clear();
  }
  EXPECT_TRUE(client().goaway);
}

TEST_F(SessionTest, PingFlood) {
  for (int i = 0; i < 3; ++i) {
    nghttp2_submit_ping(client().h2, NGHTTP2_FLAG_NONE, nullptr);
    client().pump();
  }
  EXPECT_FALSE(client().goaway);
  nghttp2_submit_ping(client().h2, NGHTTP2_FLAG_NONE, nullptr);
  client().pump();
  EXPECT_TRUE(client().goaway);
  EXPECT_EQ(client().goaway_code, static_cast<uint32_t>(NGHTTP2_ENHANCE_YOUR_CALM));
  EXPECT_EQ(client().goaway_text, "too_many_pings");
  EXPECT_TRUE(client().server->is_over());
}

TEST_F(SessionTest, PingsBesideDataAreFine) {
  for (int i = 0; i < 20; ++i) {
    nghttp2_submit_ping(client().h2, NGHTTP2_FLAG_NONE, nullptr);
    EXPECT_EQ(client().call("/t/Echo", "x").messages.size(), 1u);
  }
  EXPECT_FALSE(client().goaway);
}

TEST_F(SessionTest, KeepaliveClosesDeadConnections) {
  shared_->options.keepalive_time = seconds(10);
  shared_->options.keepalive_timeout = seconds(5);
  const int32_t id = client().open("/t/Keep");
  client().message(id, "", true);
  client().pump();
  client().pass(seconds(11));
  EXPECT_EQ(client().pings, 1);
  client().pass(seconds(6));
  EXPECT_FALSE(client().server->is_over());
  client().server->tick(client().now + seconds(11));
  client().server->tick(client().now + seconds(17));  // no answer
  EXPECT_TRUE(client().server->is_over());
}

TEST_F(SessionTest, DrainLetsCallsFinish) {
  const int32_t id = client().open("/t/Keep");
  client().message(id, "", true);
  client().pump();
  client().server->drain();
  client().pass(milliseconds(200));
  EXPECT_TRUE(client().goaway);
  EXPECT_FALSE(client().server->is_over());
  kept_[0]->send(framed("done"));
  kept_[0]->finish(ok());
  client().pump();
  EXPECT_EQ(client().replies[id].messages, std::vector<std::string>{"done"});
  EXPECT_TRUE(client().server->is_over());
}

TEST_F(SessionTest, StoppingEndsIdleStreams) {
  const int32_t id = client().open("/t/Stream");
  client().pump();
  client().server->drain();  // too old: the stream may go on
  client().pump();
  EXPECT_FALSE(client().replies[id].closed);
  shared_->stopping = true;
  client().server->drain();
  client().pass(milliseconds(200));
  EXPECT_EQ(client().replies[id].headers.at("grpc-status"), "14");
  EXPECT_TRUE(client().server->is_over());
}

TEST_F(SessionTest, StoppingRefusesNewCalls) {
  shared_->stopping = true;
  const ClientReply reply = client().call("/t/Echo", "x");
  EXPECT_EQ(reply.headers.at("grpc-status"), "14");
  EXPECT_EQ(reply.headers.at("grpc-message"),
            "GRPC server is shutting down and has stopped accepting new requests.");
}

TEST_F(SessionTest, ConnectionAge) {
  shared_->options.max_connection_age = seconds(10);
  shared_->options.max_connection_age_grace = seconds(5);
  const int32_t id = client().open("/t/Keep");
  client().message(id, "", true);
  client().pump();
  client().pass(seconds(12));
  client().pass(milliseconds(200));
  EXPECT_TRUE(client().goaway);
  EXPECT_FALSE(client().server->is_over());
  client().pass(seconds(6));
  EXPECT_TRUE(client().server->is_over());
}

TEST_F(SessionTest, BudgetOfUnfinishedRequests) {
  shared_->budget = std::make_shared<ByteBudget>(100000);
  const int32_t id = client().open("/t/Echo");
  std::string half(200000, 'q');
  write_grpc_prefix(half, false);
  half.pop_back();
  client().write(id, half);
  client().pump();
  EXPECT_EQ(client().replies[id].headers.at("grpc-status"), "8");
}

// A message of a stream that stops half-way ends the stream, like a unary request.
TEST_F(SessionTest, AStreamWhoseMessageStallsTimesOut) {
  const int32_t stalled = client().open("/t/Stream"), idle = client().open("/t/Stream");
  std::string whole(1000, 'q');
  write_grpc_prefix(whole, false);
  client().write(idle, whole);
  client().write(stalled, whole + whole.substr(0, 500));
  client().pump();
  EXPECT_EQ(seen_.size(), 2u);
  client().pass(seconds(29));
  EXPECT_EQ(client().replies[stalled].headers.count("grpc-status"), 0u);
  client().pass(seconds(3));
  EXPECT_EQ(client().replies[stalled].headers.at("grpc-status"), "4");
  EXPECT_EQ(client().replies[idle].headers.count("grpc-status"), 0u);
}

// A stalled request frees its budget for others.
TEST_F(SessionTest, AStalledRequestMakesRoom) {
  shared_->budget = std::make_shared<ByteBudget>(300000);
  std::string large(200000, 'q');
  write_grpc_prefix(large, false);
  const int32_t stalled = client().open("/t/Stream");
  client().write(stalled, large.substr(0, 160000));
  client().pump();
  client().pass(seconds(3));
  EXPECT_EQ(client().replies[stalled].headers.at("grpc-status"), "8");
  EXPECT_EQ(shared_->budget->used(), 0u);
  const int32_t next = client().open("/t/Echo");
  client().write(next, large, true);
  client().pump();
  EXPECT_EQ(client().replies[next].headers.at("grpc-status"), "0");
}

TEST_F(SessionTest, OpenedBytesCountInTheBudget) {
  shared_->budget = std::make_shared<ByteBudget>(8 << 20);
  const std::string bomb = compress(std::string(32 << 20, '\0'), Encoding::kGzip);
  const int32_t id = client().open("/t/Echo", {{"grpc-encoding", "gzip"}});
  client().message(id, bomb, true, true);
  client().pump();
  EXPECT_EQ(client().replies[id].headers.at("grpc-status"), "8");
  EXPECT_NE(client().replies[id].headers.at("grpc-message").find("8388608 bytes"),
            std::string::npos);
  EXPECT_EQ(shared_->budget->used(), 0u);
}

// Many small messages are taken in turns, between which the event loop serves others.
TEST_F(SessionTest, MessagesInARowTakeTurns) {
  constexpr size_t kMany = 20000;
  const int32_t id = client().open("/t/Stream");
  client().pump();
  for (size_t i = 0; i < kMany; ++i) client().message(id, "", i + 1 == kMany);
  const uint8_t* data = nullptr;
  for (ssize_t n; (n = nghttp2_session_mem_send(client().h2, &data)) > 0;) {
    const size_t before = seen_.size();
    client().server->receive({reinterpret_cast<const char*>(data), static_cast<size_t>(n)},
                             client().now);
    EXPECT_LE(seen_.size() - before, 2048u);
  }
  EXPECT_LT(seen_.size(), kMany);
  client().pump();
  EXPECT_EQ(seen_.size(), kMany);
  EXPECT_EQ(client().replies[id].messages.size(), kMany);
  EXPECT_EQ(client().replies[id].headers.at("grpc-status"), "0");
}

// An exception of a handler is the status of its call; threads and other calls go on.
TEST_F(SessionTest, ExceptionsEndTheirCall) {
  const auto lack = [] { throw std::bad_alloc(); };
  shared_->methods["/t/Lack"].unary = [lack](const CallPtr&, const std::string&) { lack(); };
  shared_->methods["/t/LackLater"].unary = [lack](const CallPtr& call, const std::string&) {
    call->post([call, lack] { lack(); });
  };
  shared_->methods["/t/Fault"].unary = [](const CallPtr&, const std::string&) {
    throw std::length_error("too long");
  };
  shared_->methods["/t/LackStream"].stream = [lack](const CallPtr&) {
    lack();
    return std::shared_ptr<StreamHandler>();
  };
  for (const char* path : {"/t/Lack", "/t/LackLater", "/t/LackStream"}) {
    const ClientReply reply = client().call(path, "x");
    EXPECT_EQ(reply.headers.at("grpc-status"), "8") << path;
    EXPECT_EQ(reply.headers.at("grpc-message"), "the server has no memory left for this request");
    EXPECT_EQ(reply.num_statuses, 1);
  }
  EXPECT_EQ(client().call("/t/Fault", "x").headers.at("grpc-status"), "13");
  EXPECT_EQ(client().call("/t/Echo", "x").headers.at("grpc-status"), "0");
}

// A client that reads a few bytes at a time does not keep an answer for ever.
TEST_F(SessionTest, AnswersThatTrickleAreReset) {
  client_ = std::make_unique<TestClient>(shared_, /*reads=*/false);
  const int32_t id = client().open("/t/Stream");
  client().message(id, "big 1000000");
  client().pump();
  for (int i = 0; i < 20 && !client().replies[id].closed; ++i) {
    nghttp2_submit_window_update(client().h2, NGHTTP2_FLAG_NONE, id, 1000);
    nghttp2_submit_window_update(client().h2, NGHTTP2_FLAG_NONE, 0, 1000);
    client().pass(seconds(5));
  }
  EXPECT_TRUE(client().replies[id].closed);
  EXPECT_EQ(client().replies[id].error_code, static_cast<uint32_t>(NGHTTP2_ENHANCE_YOUR_CALM));
}

TEST(Wire, Timeouts) {
  using std::chrono::nanoseconds;
  EXPECT_EQ(parse_grpc_timeout("100m"), nanoseconds(100000000));
  EXPECT_EQ(parse_grpc_timeout("2S"), nanoseconds(2000000000));
  EXPECT_EQ(parse_grpc_timeout("99999999H"), nanoseconds(std::chrono::hours(24 * 365)));
  for (const char* bad : {"", "m", "1", "1x", "-1m", "123456789m", " 1m"}) {
    EXPECT_FALSE(parse_grpc_timeout(bad)) << bad;
  }
}

}  // namespace
}  // namespace nereid::front
