// Large gRPC messages: workers open and read them, their parsed form counts in the budget, and
// settings have none.
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "front/fake_triton.h"
#include "front/grpc/infer.h"
#include "front/grpc/messages.h"
#include "front/grpc/service.h"
#include "front/grpc/test_client.h"
#include "front/http/compression.h"

namespace nereid::front {
namespace {

using namespace std::string_literals;

const std::string kService = "/inference.GRPCInferenceService/";

std::string message_of(const std::string& type, const std::string& json) {
  const auto bytes = ProtoMessages().from_json("inference." + type, json);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes->substr(kGrpcPrefixBytes);
}

// To a model that returns its input.
std::string request(const std::string& id) {
  return message_of("ModelInferRequest", fmt::format(R"({{"model_name": "types", "id": "{}",
"inputs": [{{"name": "x", "datatype": "INT32", "shape": ["1", "1"], "contents": {{"int_contents": [1]}}}}]}})",
                                                     id));
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
    client_ = std::make_unique<TestClient>(shared_);
  }
  ~LargeMessagesTest() override { shared_->workers.reset(); }

  // From here on the worker has something else to do, until the result is set.
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
  // Once it is open it is quick to read.
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

// A text of no characters takes two bytes of a message, and twenty times that as an object.
TEST_F(LargeMessagesTest, TheParsedFormCountsInTheBudget) {
  ASSERT_GT(budget_->limit(), 2u << 16);
  std::string texts;
  for (int i = 0; i < 1 << 16; ++i) texts += "\x42\x00"s;
  const std::string tensor =
      "\x0a\x01x\x12\x05"
      "BYTES\x2a\x80\x80\x08"s +
      texts;
  std::string size;
  for (size_t n = tensor.size(); n > 0; n >>= 7)
    size += static_cast<char>((n & 0x7f) | (n > 0x7f ? 0x80 : 0));
  const int32_t id = client_->open(kService + "ModelInfer");
  client_->message(id, "\x0a\x05types\x2a" + size + tensor, true);
  EXPECT_EQ(reply(id).headers.at("grpc-status"), "8");
  EXPECT_NE(reply(id).headers.at("grpc-message").find("more than 1048576 bytes"),
            std::string::npos);
  EXPECT_EQ(budget_->used(), 0u);
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
