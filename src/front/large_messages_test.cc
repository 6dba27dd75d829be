// Large gRPC messages: workers decompress and parse them, their parsed form counts in the budget,
// and settings have none.
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "front/grpc/infer.h"
#include "front/grpc/messages.h"
#include "front/grpc/service.h"
#include "front/grpc/test_client.h"
#include "front/http/compression.h"
#include "front/testing/fake_triton.h"

namespace nereid::front {
namespace {

using namespace std::string_literals;

const std::string kService = "/inference.GRPCInferenceService/";

std::string message_of(const std::string& type, const std::string& json) {
  const auto bytes = ProtoMessages().from_json("inference." + type, json);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes->substr(kGrpcPrefixBytes);
}

// A request to a model that returns its input.
std::string request(const std::string& id) {
  return message_of("ModelInferRequest", fmt::format(R"({{"model_name": "types", "id": "{}",
"inputs": [{{"name": "x", "datatype": "INT32", "shape": ["1", "1"], "contents": {{"int_contents": [1]}}}}]}})",
                                                     id));
}

// The model answers when the test releases it.
std::string slow_request() {
  return message_of("ModelInferRequest", R"({"model_name": "types",
"parameters": {"waits": {"int64_param": "1"}},
"inputs": [{"name": "x", "datatype": "INT32", "shape": ["1", "1"], "contents": {"int_contents": [1]}}]})");
}

const std::string kLongId(kQuickMessageBytes, 'i');

class LargeMessagesTest : public ::testing::Test {
 protected:
  LargeMessagesTest() {
    FakeTriton::get().reset();
    shared_->workers = std::make_unique<Workers>(1);
    GrpcOptions options;
    options.budget = budget_;
    auto methods = make_methods(
        fake_server(), options, [] { return false; }, shared_->workers.get());
    EXPECT_TRUE(methods.ok()) << methods.status();
    shared_->methods = *std::move(methods);
    shared_->budget = budget_;
    client_ = std::make_unique<TestClient>(shared_);
  }
  ~LargeMessagesTest() override { shared_->workers.reset(); }

  // Keeps the worker busy until the result is set.
  std::promise<void> busy() {
    std::promise<void> end;
    shared_->workers->push([waits = end.get_future().share()] { waits.wait(); });
    return end;
  }
  const ClientReply& reply(int32_t id) {
    while (!client_->replies[id].closed) {
      client_->pump();
      std::this_thread::yield();
    }
    return client_->replies[id];
  }
  bool is_live() {
    return client_->call(kService + "ServerLive", "").headers.at("grpc-status") == "0";
  }

  std::shared_ptr<ByteBudget> budget_ = std::make_shared<ByteBudget>(1 << 20);
  std::shared_ptr<GrpcShared> shared_ = std::make_shared<GrpcShared>();
  std::unique_ptr<TestClient> client_;
};

TEST_F(LargeMessagesTest, AWorkerReadsThem) {
  auto end = busy();
  const int32_t id = client_->open(kService + "ModelInfer");
  client_->message(id, request(kLongId), true);
  client_->pump();
  EXPECT_FALSE(client_->replies[id].closed);
  EXPECT_TRUE(is_live());
  end.set_value();
  EXPECT_EQ(reply(id).headers.at("grpc-status"), "0");
  EXPECT_EQ(reply(id).messages.size(), 1u);
}

TEST_F(LargeMessagesTest, AWorkerOpensThem) {
  // Decompressed, it is parsed quickly.
  std::string text(kQuickMessageBytes / 2, '\0');
  uint32_t state = 1;
  for (char& c : text) c = static_cast<char>('a' + ((state = state * 1664525 + 1013904223) >> 28));
  auto end = busy();
  const int32_t id = client_->open(kService + "ModelInfer", {{"grpc-encoding", "gzip"}});
  client_->message(id, compress(request(text), Encoding::kGzip), true, true);
  client_->pump();
  EXPECT_FALSE(client_->replies[id].closed);
  EXPECT_TRUE(is_live());
  end.set_value();
  EXPECT_EQ(reply(id).headers.at("grpc-status"), "0") << reply(id).headers.at("grpc-message");
}

TEST_F(LargeMessagesTest, TheyKeepTheirPlaceInAStream) {
  auto end = busy();
  const int32_t id = client_->open(kService + "ModelStreamInfer");
  client_->message(id, request(kLongId));
  client_->message(id, request("second"));
  client_->message(id, request(kLongId));
  client_->message(id, request("fourth"), true);
  client_->pump();
  EXPECT_TRUE(client_->replies[id].messages.empty());
  EXPECT_TRUE(is_live());
  end.set_value();
  const auto& messages = reply(id).messages;
  ASSERT_EQ(messages.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const auto text = ProtoMessages().to_json("inference.ModelStreamInferResponse", messages[i]);
    ASSERT_TRUE(text.ok()) << text.status();
    const auto wanted = i == 1 ? "second" : i == 3 ? "fourth" : kLongId;
    EXPECT_NE(text->find('"' + std::string(wanted) + '"'), text->npos) << i;
  }
  EXPECT_EQ(reply(id).headers.at("grpc-status"), "0");
}

TEST_F(LargeMessagesTest, AClientMayLeaveMeanwhile) {
  auto end = busy();
  for (const char* rpc : {"ModelInfer", "ModelStreamInfer"}) {
    const int32_t id = client_->open(kService + rpc);
    client_->message(id, request(kLongId), /*end=*/rpc == std::string_view("ModelInfer"));
    client_->pump();
    client_->reset(id);
  }
  end.set_value();
  shared_->workers.reset();
  client_->pump();
  EXPECT_TRUE(is_live());
  EXPECT_EQ(shared_->stats->calls_active, 0);
  EXPECT_EQ(budget_->used(), 0u);
}

// Two bytes of a message can become an object of a hundred, and one byte a number of eight.
TEST_F(LargeMessagesTest, TheParsedFormCountsInTheBudget) {
  const auto field = [](const std::string& tag, const std::string& value) {
    std::string out = tag;
    for (size_t n = value.size(); n > 0; n >>= 7)
      out += static_cast<char>((n & 0x7f) | (n > 0x7f ? 0x80 : 0));
    return out + value;
  };
  std::string parameters;
  for (int i = 0; i < 1 << 16; ++i) parameters += "\x22\x00"s;
  const std::string numbers = field("\x2a", field("\x1a", std::string(size_t{1} << 18, '\1')));
  for (const std::string& rest : {parameters, numbers}) {
    const std::string input = field("\x0a", "x") + field("\x12", "INT64") + rest;
    const int32_t id = client_->open(kService + "ModelInfer");
    client_->message(id, "\x0a\x05types" + field("\x2a", input), true);
    EXPECT_EQ(reply(id).headers.at("grpc-status"), "8");
    EXPECT_NE(reply(id).headers.at("grpc-message").find("more than 1048576 bytes"),
              std::string::npos);
    EXPECT_EQ(budget_->used(), 0u);
  }
}

// Answers that wait for an earlier one stop the client.
TEST_F(LargeMessagesTest, AnswersThatWaitAreCounted) {
  constexpr size_t kMany = 10000;
  FakeTriton::get().hold_types = true;
  const int32_t id = client_->open(kService + "ModelStreamInfer");
  client_->message(id, slow_request());
  for (size_t i = 0; i < kMany; ++i) client_->message(id, "\x0a\x01x"s, i + 1 == kMany);
  client_->pump();
  EXPECT_TRUE(client_->replies[id].messages.empty());
  EXPECT_GT(shared_->stats->buffered_bytes, 40000u);  // more than half are not parsed yet
  FakeTriton::get().hold_types = false;
  EXPECT_EQ(reply(id).messages.size(), kMany + 1);
  EXPECT_EQ(reply(id).headers.at("grpc-status"), "0");
  EXPECT_EQ(budget_->used(), 0u);
}

// One request after the other, since their own messages count, too, until they are answered.
TEST_F(LargeMessagesTest, AnswersThatWaitCountInTheBudget) {
  constexpr size_t kMany = 30, kData = 48000;
  FakeTriton::get().hold_types = true;
  const int32_t id = client_->open(kService + "ModelStreamInfer");
  client_->message(id, slow_request());
  std::string data;  // bytes "y" in base64, which come back in the answer
  for (size_t i = 0; i < kData / 3; ++i) data += "eXl5";
  // A parameter that does not come back: a held request takes more than its answer.
  const std::string large =
      message_of("ModelInferRequest", fmt::format(R"({{"model_name": "types",
"parameters": {{"unknown": {{"string_param": "{}"}}}},
"inputs": [{{"name": "x", "datatype": "INT32", "shape": ["1", "12000"]}}], "raw_input_contents": ["{}"]}})",
                                                  std::string(8000, 'p'), data));
  size_t num_kept = 0, before = 0;
  for (size_t i = 0; i < kMany; ++i) {
    client_->message(id, large, i + 1 == kMany);
    const auto more = [&] {
      client_->pump();
      return budget_->used() - before;
    };
    const auto is_kept = [](size_t bytes) { return bytes > kData && bytes < kData + 1000; };
    const auto is_refused = [](size_t bytes) { return bytes > 0 && bytes < 1000; };
    size_t added = more();
    for (; !is_kept(added) && !is_refused(added); added = more()) std::this_thread::yield();
    num_kept += is_kept(added);
    before += added;
    EXPECT_LE(before, budget_->limit());
  }
  EXPECT_GT(num_kept, 10u);
  EXPECT_LT(num_kept, kMany);
  FakeTriton::get().hold_types = false;
  const auto& messages = reply(id).messages;
  ASSERT_EQ(messages.size(), kMany + 1);
  size_t num_whole = 0, num_refused = 0;
  for (const std::string& message : messages) {
    num_whole += message.find(std::string(kData, 'y')) != message.npos;
    num_refused += message.find("more than 1048576 bytes") != message.npos;
  }
  EXPECT_EQ(num_whole, num_kept);
  EXPECT_EQ(num_whole + num_refused, kMany);
  EXPECT_EQ(budget_->used(), 0u);
}

// Decompressed bytes count while they are made.
TEST_F(LargeMessagesTest, WhatIsOpenedCountsInTheBudget) {
  const std::string bomb = compress(std::string(32 << 20, '\0'), Encoding::kGzip);
  for (const char* rpc : {"ModelInfer", "ModelStreamInfer"}) {
    const int32_t id = client_->open(kService + rpc, {{"grpc-encoding", "gzip"}});
    client_->message(id, bomb, true, true);
    EXPECT_EQ(reply(id).headers.at("grpc-status"), "8") << rpc;
    EXPECT_NE(reply(id).headers.at("grpc-message").find("more than 1048576 bytes"),
              std::string::npos);
    EXPECT_EQ(budget_->used(), 0u);
  }
}

TEST_F(LargeMessagesTest, SettingsAreShort) {
  const std::string name(300000, 'x');
  for (const char* rpc : {"ModelReady", "SystemSharedMemoryRegister"}) {
    const std::string body =
        message_of(std::string(rpc) + "Request", R"({"name": ")" + name + "\"}");
    const ClientReply refused = client_->call(kService + rpc, body);
    EXPECT_EQ(refused.headers.at("grpc-status"), "3") << rpc;
    EXPECT_NE(refused.headers.at("grpc-message").find("at most 262144 are allowed here"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace nereid::front
