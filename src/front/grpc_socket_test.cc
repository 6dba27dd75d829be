// The gRPC port over real sockets: limits on connections, slow clients, and times in
// traces of its requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <filesystem>
#include <map>
#include <memory>
#include <vector>

#include "base/file.h"
#include "front/grpc/call.h"
#include "front/grpc/messages.h"
#include "front/grpc/server.h"
#include "front/grpc/wire.h"
#include "front/testing/server_fixture.h"
#include "front/trace/tracer.h"

namespace nereid::front {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

// An HTTP/2 client on a socket of its own; its calls block.
class SocketClient {
 public:
  // Without `speaks` it sends nothing by itself.
  explicit SocketClient(int port, bool speaks = true) : fd_(connect_to(port)), speaks_(speaks) {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_client_new(&h2_, callbacks, this);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(h2_, NGHTTP2_FLAG_NONE, nullptr, 0);
  }
  ~SocketClient() {
    nghttp2_session_del(h2_);
    close(fd_);
  }
  SocketClient(const SocketClient&) = delete;
  SocketClient& operator=(const SocketClient&) = delete;

  // False: the connection is over, or nothing came for a minute.
  bool wait(const std::function<bool()>& condition) {
    while (!condition()) {
      const uint8_t* data = nullptr;
      for (ssize_t n; speaks_ && (n = nghttp2_session_mem_send(h2_, &data)) > 0;) {
        send_bytes({reinterpret_cast<const char*>(data), static_cast<size_t>(n)});
      }
      uint8_t buffer[8192];
      const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return false;
      if (n <= 0) {
        is_over_ = true;
        return condition();
      }
      nghttp2_session_mem_recv(h2_, buffer, static_cast<size_t>(n));
    }
    return true;
  }
  bool wait_for_server() {
    return wait([this] { return num_settings_ > 0; });
  }
  bool wait_for_end() {
    return wait([this] { return is_over_; });
  }
  bool ping() {
    nghttp2_submit_ping(h2_, NGHTTP2_FLAG_NONE, nullptr);
    return wait([this, wanted = num_pongs_ + 1] { return num_pongs_ >= wanted; });
  }
  void send_bytes(std::string_view bytes) {
    static_cast<void>(!::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }

  // Makes a call with `body`, a part of its message unless `is_whole`; returns the grpc-status, or
  // "" when the connection ended.
  std::string call(const std::string& path, std::string body, bool is_whole = true) {
    return status(begin(path, std::move(body), is_whole));
  }
  std::string status(int32_t id) {
    return wait([&] { return closed_[id]; }) ? statuses_[id] : "";
  }
  // Opens a call's stream. Its bytes are sent in the next wait.
  int32_t begin(const std::string& path, std::string body, bool is_whole = true) {
    std::vector<std::pair<std::string, std::string>> headers = {
        {":method", "POST"},
        {":scheme", "http"},
        {":path", path},
        {":authority", "t"},
        {"content-type", "application/grpc"},
        {"te", "trailers"}};
    std::vector<nghttp2_nv> pairs;
    for (auto& [name, value] : headers) {
      pairs.push_back({reinterpret_cast<uint8_t*>(name.data()),
                       reinterpret_cast<uint8_t*>(value.data()), name.size(), value.size(),
                       NGHTTP2_NV_FLAG_NONE});
    }
    body_ = std::move(body);
    ends_ = is_whole;
    nghttp2_data_provider provider = {};
    provider.read_callback = read_body;
    return nghttp2_submit_request(h2_, nullptr, pairs.data(), pairs.size(), &provider, nullptr);
  }

 private:
  static SocketClient& self(void* user) { return *static_cast<SocketClient*>(user); }

  static ssize_t read_body(nghttp2_session*, int32_t, uint8_t* buffer, size_t length,
                           uint32_t* flags, nghttp2_data_source*, void* user) {
    SocketClient& client = self(user);
    const size_t n = std::min(length, client.body_.size());
    if (n == 0 && !client.ends_) return NGHTTP2_ERR_DEFERRED;
    std::copy_n(client.body_.begin(), n, buffer);
    client.body_.erase(0, n);
    if (client.body_.empty() && client.ends_) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(n);
  }
  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name,
                       size_t name_size, const uint8_t* value, size_t value_size, uint8_t,
                       void* user) {
    if (std::string_view(reinterpret_cast<const char*>(name), name_size) == "grpc-status") {
      self(user).statuses_[frame->hd.stream_id].assign(reinterpret_cast<const char*>(value),
                                                       value_size);
    }
    return 0;
  }
  static int on_close(nghttp2_session*, int32_t id, uint32_t, void* user) {
    self(user).closed_[id] = true;
    return 0;
  }
  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    const bool is_ack = (frame->hd.flags & NGHTTP2_FLAG_ACK) != 0;
    if (frame->hd.type == NGHTTP2_SETTINGS && !is_ack) ++self(user).num_settings_;
    if (frame->hd.type == NGHTTP2_PING && is_ack) ++self(user).num_pongs_;
    return 0;
  }

  const int fd_;
  const bool speaks_;
  nghttp2_session* h2_ = nullptr;
  std::string body_;
  bool ends_ = true, is_over_ = false;
  int num_settings_ = 0, num_pongs_ = 0;
  std::map<int32_t, std::string> statuses_;
  std::map<int32_t, bool> closed_;
};

std::string framed_request(const std::string& json) {
  const ProtoMessages messages;
  auto bytes = messages.from_json("inference.ModelInferRequest", json);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  write_grpc_prefix(*bytes, /*compressed=*/false);
  return *bytes;
}

class GrpcSocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    FakeTriton::get().reset();
    options_.host = "127.0.0.1";
    options_.port = 0;
  }
  void start() {
    auto server = GrpcServer::start(fake_server(), options_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::unique_ptr<SocketClient> connect(bool speaks = true) {
    return std::make_unique<SocketClient>(server_->port(), speaks);
  }

  GrpcOptions options_;
  std::unique_ptr<GrpcServer> server_;
};

constexpr char kLive[] = "/inference.GRPCInferenceService/ServerLive";
const std::string kNoMessage(kGrpcPrefixBytes, '\0');

const std::string kLastsUntilCancelled =
    framed_request(R"({"model_name": "tensorrt_llm", "inputs": [
{"name": "input_ids", "datatype": "INT32", "shape": [1, 2], "contents": {"int_contents": [1, 2]}},
{"name": "input_lengths", "datatype": "INT32", "shape": [1, 1], "contents": {"int_contents": [2]}}]})");

TEST_F(GrpcSocketTest, ConnectionsBeyondTheLimitAreClosed) {
  options_.max_connections = 2;
  start();
  auto first = connect(), second = connect();
  EXPECT_TRUE(first->wait_for_server());
  EXPECT_TRUE(second->wait_for_server());
  EXPECT_TRUE(connect()->wait_for_end());
  EXPECT_EQ(server_->stats()->connections_refused, 1u);
  EXPECT_EQ(server_->stats()->connections_accepted, 2u);
  // Open connections are served, and closing one makes room.
  EXPECT_EQ(first->call(kLive, kNoMessage), "0");
  second.reset();
  EXPECT_TRUE(eventually([&] { return server_->stats()->connections_open == 1; }));
  EXPECT_EQ(connect()->call(kLive, kNoMessage), "0");
}

TEST_F(GrpcSocketTest, WhoDoesNotBeginIsClosedWhoIdlesIsNot) {
  options_.handshake_timeout = milliseconds(200);
  start();
  std::vector<std::unique_ptr<SocketClient>> idle;
  for (int i = 0; i < 50; ++i) {
    idle.push_back(connect());
    // The server has its first frame. (A machine that stalls may need several tries.)
    while (!idle.back()->ping()) idle.back() = connect();
  }
  const auto silent = connect(/*speaks=*/false), slow = connect(/*speaks=*/false);
  slow->send_bytes("PRI * HTTP/2.0\r\n");  // and never the rest
  EXPECT_TRUE(silent->wait_for_end());
  EXPECT_TRUE(slow->wait_for_end());
  for (const auto& client : idle) EXPECT_TRUE(client->ping());
  EXPECT_TRUE(eventually([&] { return server_->stats()->connections_open == 50; }));
}

// A request that stops half-way times out alone and delays no other.
TEST_F(GrpcSocketTest, RequestsThatStopHalfWay) {
  options_.message_timeout = milliseconds(200);
  options_.threads = 1;
  start();
  auto slow = connect();
  EXPECT_EQ(slow->call(kLive, kNoMessage.substr(1), /*is_whole=*/false), "4");
  EXPECT_TRUE(eventually([&] { return slow->call(kLive, kNoMessage) == "0"; }));
  EXPECT_EQ(server_->stats()->buffered_bytes, 0u);
}

TEST_F(GrpcSocketTest, AStopSaysWhatItWaitsFor) {
  FakeTriton::get().max_tokens_now = 0;  // so the request lasts until it is cancelled
  start();
  const auto client = connect();
  client->begin("/inference.GRPCInferenceService/ModelStreamInfer", kLastsUntilCancelled);
  // A ping overtakes queued output, so the second one is behind the request.
  EXPECT_TRUE(client->ping() && client->ping());
  EXPECT_EQ(server_->stats()->calls_active, 1);
  testing::internal::CaptureStdout();
  server_->stop(milliseconds(0));
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              HasSubstr("Timeout 0: Found 2 gRPC service connections and inference handlers"));
}

TEST_F(GrpcSocketTest, WhatAStopFindsRunningEndsWithAStatus) {
  FakeTriton::get().max_tokens_now = 0;
  start();
  const auto client = connect();
  const int32_t id =
      client->begin("/inference.GRPCInferenceService/ModelStreamInfer", kLastsUntilCancelled);
  EXPECT_TRUE(client->ping() && client->ping());
  server_->stop(milliseconds(0));
  EXPECT_EQ(client->status(id), "14");
}

// A trace file, complete once the traced requests are over.
class TraceScratch {
 public:
  explicit TraceScratch(const char* name)
      : path_(std::filesystem::temp_directory_path() / fmt::format("{}.{}", name, ::getpid())) {
    std::filesystem::remove(path_);
  }
  ~TraceScratch() { std::filesystem::remove(path_); }

  std::shared_ptr<Tracer> tracer() const {
    TraceOptions options;
    options.level = TRITONSERVER_TRACE_LEVEL_TIMESTAMPS;
    options.rate = 1;
    options.file = path_.string();
    auto tracer = Tracer::create(fake_server(), options);
    EXPECT_TRUE(tracer.ok()) << tracer.status();
    return *tracer;
  }
  // Names of the events with this prefix, in the order of the file; times must not decrease.
  std::vector<std::string> events(std::string_view begin) const {
    std::string text;
    EXPECT_TRUE(eventually([&] {
      const auto read = read_file(path_, 1 << 20);
      text = read.ok() ? *read : "";
      return parse_json(text).ok();
    }));
    std::vector<std::string> names;
    int64_t last = 0;
    const auto records = parse_json(text);
    EXPECT_TRUE(records.ok()) << text;
    if (!records.ok()) return names;
    for (const json::value& record : records->as_array()) {
      const json::value* stamps = record.as_object().if_contains("timestamps");
      if (stamps == nullptr) continue;
      const json::value& stamp = stamps->as_array().at(0);
      const std::string name(stamp.at("name").as_string());
      if (!name.starts_with(begin)) continue;
      names.push_back(name);
      EXPECT_GE(stamp.at("ns").as_int64(), last) << name;
      last = stamp.at("ns").as_int64();
    }
    return names;
  }

 private:
  std::filesystem::path path_;
};

std::string infer_message(int replies) {
  return framed_request(
      fmt::format(R"({{"model_name": "types", "parameters": {{"replies": {{"int64_param": "{}"}}}},
"inputs": [{{"name": "count", "datatype": "INT32", "shape": ["1", "1"],
             "contents": {{"int_contents": [1]}}}}]}})",
                  replies));
}

TEST_F(GrpcSocketTest, TracesOfUnaryCallsHaveTheTimesOfReadingAndSending) {
  const TraceScratch scratch("grpc_unary_trace");
  options_.tracer = scratch.tracer();
  start();
  EXPECT_EQ(connect()->call("/inference.GRPCInferenceService/ModelInfer", infer_message(1)), "0");
  EXPECT_THAT(scratch.events("GRPC_"), ElementsAre("GRPC_WAITREAD_START", "GRPC_WAITREAD_END",
                                                   "GRPC_SEND_START", "GRPC_SEND_END"));
}

TEST_F(GrpcSocketTest, ModelInferTakesDecoupledModelsWhereThatIsAllowed) {
  constexpr char kInfer[] = "/inference.GRPCInferenceService/ModelInfer";
  FakeTriton::get().types_is_decoupled = true;
  start();
  EXPECT_EQ(connect()->call(kInfer, infer_message(1)), "12");
  options_.infers_decoupled = true;
  start();
  EXPECT_EQ(connect()->call(kInfer, infer_message(1)), "0");
  EXPECT_EQ(connect()->call(kInfer, infer_message(2)), "3");
}

// The core lets a model send more responses than it declares; only the first one counts.
TEST_F(GrpcSocketTest, AModelThatAnswersOnceIsHeardOnce) {
  const TraceScratch scratch("grpc_once_trace");
  options_.tracer = scratch.tracer();
  start();
  EXPECT_EQ(connect()->call("/inference.GRPCInferenceService/ModelStreamInfer", infer_message(3)),
            "0");
  EXPECT_THAT(scratch.events("GRPC_SEND"), ElementsAre("GRPC_SEND_START", "GRPC_SEND_END"));
  EXPECT_EQ(FakeTriton::get().last_tenant, 0x7f000001u) << "the client's address";
}

TEST_F(GrpcSocketTest, TracesOfStreamsHaveTheTimesOfEachAnswer) {
  FakeTriton::get().types_is_decoupled = true;
  const TraceScratch scratch("grpc_stream_trace");
  options_.tracer = scratch.tracer();
  start();
  EXPECT_EQ(connect()->call("/inference.GRPCInferenceService/ModelStreamInfer", infer_message(3)),
            "0");
  EXPECT_THAT(
      scratch.events("GRPC_"),
      ElementsAre("GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "GRPC_SEND_START", "GRPC_SEND_END",
                  "GRPC_SEND_START", "GRPC_SEND_END", "GRPC_SEND_START", "GRPC_SEND_END"));
}

// Each chunk is made after the client has read the previous one, so each is written alone.
TEST(HttpTrace, EachChunkOfAGenerateStreamHasItsTimes) {
  constexpr int kChunks = 4;
  FakeTriton& fake = FakeTriton::get();
  fake.reset();
  fake.script = {7};
  fake.max_tokens_now = 1;
  const TraceScratch scratch("http_stream_trace");
  HttpOptions options = local_options();
  options.tracer = scratch.tracer();
  const auto server = start_front(options);
  ASSERT_NE(server, nullptr);
  const int fd = connect_to(server->http_port());
  const std::string text = request_text(
      "POST", "/v2/models/tensorrt_llm/generate_stream",
      fmt::format(R"({{"input_ids": [1, 2], "input_lengths": 2, "request_output_len": {}}})",
                  kChunks));
  ASSERT_EQ(send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  std::string got;
  char buffer[4096];
  for (ssize_t n; (n = recv(fd, buffer, sizeof buffer, 0)) > 0;) {
    got.append(buffer, static_cast<size_t>(n));
    int events = 0;
    for (size_t at = 0; (at = got.find("data: ", at)) != std::string::npos; ++at) ++events;
    fake.max_tokens_now = events + 1;
  }
  close(fd);
  EXPECT_NE(got.find("200 OK"), std::string::npos) << got;
  server->stop(milliseconds(60000));
  const std::vector<std::string> sends = scratch.events("HTTP_SEND");
  EXPECT_GE(sends.size(), size_t{2 * kChunks});
  for (size_t i = 0; i < sends.size(); ++i) {
    EXPECT_EQ(sends[i], i % 2 == 0 ? "HTTP_SEND_START" : "HTTP_SEND_END") << i;
  }
}

}  // namespace
}  // namespace nereid::front
