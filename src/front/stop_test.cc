// Clients of a server that stops while it answers them.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "front/testing/server_fixture.h"

namespace nereid::front {
namespace {

using std::chrono::milliseconds;

constexpr char kGenerate[] = R"({"input_ids": [1, 2], "input_lengths": 2,
                                 "request_output_len": 20})";

class StopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_.reset();
    fake_.max_tokens_now = 2;  // so answers last until the test or their end releases them
    const auto tokenizer = *text::Tokenizer::load(fake_.tokenizer_dir);
    {
      std::lock_guard lock(fake_.mutex);
      fake_.script = *tokenizer->encode("a b c d e f g", {.add_special_tokens = false});
    }
    server_ = start_front(local_options());
    ASSERT_NE(server_, nullptr);
    port_ = server_->http_port();
  }
  void TearDown() override { stop_front(*server_); }

  // The reply to a request that is running at the stop.
  Reply reply_at_stop(const std::string& path, const std::string& body,
                      const std::atomic<bool>* hurry = nullptr) {
    Reply reply;
    std::thread client([&] { reply = ask(port_, "POST", path, body); });
    EXPECT_TRUE(eventually([&] { return fake_.num_live > 0; }));
    if (body.find("stream") != std::string::npos || path.ends_with("stream")) {
      EXPECT_TRUE(eventually([&] { return fake_.num_sent >= 2; }));
    }
    server_->stop(milliseconds(hurry == nullptr ? 0 : 86400000), hurry);
    client.join();
    EXPECT_TRUE(eventually([&] { return fake_.num_cancelled == 1; }));
    return reply;
  }

  FakeTriton& fake_ = FakeTriton::get();
  std::unique_ptr<HttpServer> server_;
  int port_ = 0;
};

TEST_F(StopTest, RunningStreamsFinish) {
  Reply r;
  std::thread client([&] {
    r = ask(port_, "POST", "/v1/completions",
            R"({"prompt": "x", "stream": true, "max_tokens": 20})");
  });
  EXPECT_TRUE(eventually([&] { return fake_.num_live > 0; }));
  std::thread stopper([&] { server_->stop(milliseconds(60000)); });
  EXPECT_TRUE(eventually([&] {
    const int fd = connect_to(port_);
    if (fd >= 0) close(fd);
    return fd < 0;
  }));
  fake_.max_tokens_now = INT_MAX;
  client.join();
  stopper.join();
  EXPECT_TRUE(r.body.ends_with("data: [DONE]\n\n")) << r.body;
  EXPECT_EQ(r.body.find("\"error\""), std::string::npos);
  EXPECT_EQ(fake_.num_cancelled, 0);
}

TEST_F(StopTest, AnEventStreamEndsWithAnErrorEvent) {
  const Reply r = reply_at_stop("/v2/models/tensorrt_llm/generate_stream", kGenerate);
  EXPECT_EQ(r.status, 200);
  EXPECT_TRUE(r.body.ends_with("data: {\"error\":\"Server exiting\"}\n\n")) << r.body;
}

TEST_F(StopTest, AnOpenAiStreamEndsWithAnErrorEvent) {
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    const bool chats = std::string_view(path).find("chat") != std::string_view::npos;
    const Reply r = reply_at_stop(path, chats ? R"({"messages": [{"role": "user", "content": "x"}],
                                        "stream": true})"
                                              : R"({"prompt": "x", "stream": true})");
    EXPECT_EQ(r.status, 200);
    EXPECT_TRUE(r.body.ends_with("data: [DONE]\n\n")) << r.body;
    EXPECT_NE(r.body.find("\"message\":\"Server exiting\""), std::string::npos) << r.body;
    TearDown();
    SetUp();
  }
}

TEST_F(StopTest, WaitingRequestsGet503) {
  const Reply whole = reply_at_stop("/v2/models/tensorrt_llm/generate", kGenerate);
  EXPECT_EQ(whole.status, 503);
  EXPECT_EQ(whole.body, R"({"error":"Server exiting"})");
}

TEST_F(StopTest, AWaitingOpenAiRequestGets503) {
  const Reply r = reply_at_stop("/v1/completions", R"({"prompt": "x"})");
  EXPECT_EQ(r.status, 503);
  EXPECT_EQ(r.json().at("error").at("message").as_string(), "Server exiting");
}

TEST_F(StopTest, ARequestThatIsStillArrivingGets503) {
  const int fd = connect_to(port_);
  const std::string_view half =
      "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\n{";
  ASSERT_EQ(send(fd, half.data(), half.size(), MSG_NOSIGNAL), static_cast<ssize_t>(half.size()));
  // A later request's answer shows that the first bytes of this one were read.
  ask(port_, "GET", "/v2/health/live");
  ask(port_, "GET", "/v2/health/live");
  server_->stop(milliseconds(0));
  char buffer[4096];
  const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
  close(fd);
  ASSERT_GT(n, 0);
  EXPECT_TRUE(std::string_view(buffer, static_cast<size_t>(n)).starts_with("HTTP/1.1 503"));
}

TEST_F(StopTest, AHurryEndsTheGrace) {
  const std::atomic<bool> hurry{true};
  const Reply r = reply_at_stop("/v1/completions", R"({"prompt": "x"})", &hurry);
  EXPECT_EQ(r.status, 503);
}

}  // namespace
}  // namespace nereid::front
