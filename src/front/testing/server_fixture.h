// A front over the scripted core, accessed through real sockets.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "front/server.h"
#include "front/testing/fake_triton.h"
#include "front/testing/test_socket.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::front {

// The JSON objects of the events; "[DONE]" as a string.
inline std::vector<json::value> events(const std::string& body) {
  std::vector<json::value> out;
  for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const size_t end = body.find("\n\n", at);
    const std::string text = body.substr(at + 6, end - at - 6);
    out.push_back(text == "[DONE]" ? json::value("[DONE]") : *parse_json(text));
    at = end;
  }
  return out;
}

// Options of a server at free ports of 127.0.0.1. `metrics_port`: -1: none.
inline HttpOptions local_options(int metrics_port = -1) {
  HttpOptions options;
  options.host = "127.0.0.1";
  options.http_port = 0;
  options.metrics_port = metrics_port;
  return options;
}
// A server over the scripted core; null where it does not start, which fails the test.
inline std::unique_ptr<HttpServer> start_front(const HttpOptions& options) {
  auto server = HttpServer::start(fake_server(), options);
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}
// Whatever a test did, no object of the core may be left behind.
inline void stop_front(HttpServer& server) {
  server.stop(std::chrono::seconds(60));
  const FakeTriton& fake = FakeTriton::get();
  EXPECT_TRUE(eventually([&] { return fake.num_live == 0 && fake.num_responses == 0; }));
}

class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_.reset();
    HttpOptions options = local_options(/*metrics_port=*/0);
    options.max_body_bytes = max_body_bytes_;
    options.openai = openai_;
    options.openai.model_name = "org/tiny";
    server_ = start_front(options);
    ASSERT_NE(server_, nullptr);
    port_ = server_->http_port();
  }
  void TearDown() override { stop_front(*server_); }

  std::vector<int32_t> ids(std::string_view text) {
    static const auto tokenizer = *text::Tokenizer::load(fake_.tokenizer_dir);
    return *tokenizer->encode(text, {.add_special_tokens = false});
  }
  void say(std::string_view text, bool end = true) {
    std::lock_guard lock(fake_.mutex);
    fake_.script = ids(text);
    if (end) fake_.script.push_back(3);
  }
  Reply post(std::string_view path, std::string_view body) {
    return ask(port_, "POST", path, body);
  }

  size_t max_body_bytes_ = 100000;
  OpenAiOptions openai_;  // of the server that SetUp() starts
  FakeTriton& fake_ = FakeTriton::get();
  std::unique_ptr<HttpServer> server_;
  int port_ = 0;
};

}  // namespace nereid::front
