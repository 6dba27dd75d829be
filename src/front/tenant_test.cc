// Whose a request is, on its way from the connection to the core.
#include <gtest/gtest.h>

#include <boost/asio/ip/address.hpp>
#include <set>

#include "front/grpc/messages.h"
#include "front/grpc/service.h"
#include "front/grpc/test_client.h"
#include "front/http/listen.h"
#include "front/protection/api_keys.h"
#include "front/testing/server_fixture.h"

namespace nereid::front {
namespace {

constexpr uint64_t kThisMachine = 0x7f000001;

TEST(Tenant, OfAnAddress) {
  const auto of = [](const char* text) { return tenant_of(boost::asio::ip::make_address(text)); };
  EXPECT_EQ(of("127.0.0.1"), kThisMachine);
  EXPECT_EQ(of("::ffff:127.0.0.1"), kThisMachine);
  EXPECT_NE(of("10.0.0.1"), of("10.0.0.2"));
  EXPECT_EQ(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::7")) << "one network";
  EXPECT_NE(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
}

class TenantTest : public ::testing::Test {
 protected:
  void SetUp() override { fake_.reset(); }

  // Tenant of the last request that the core has got; 0 until the next one.
  uint64_t take() { return fake_.last_tenant.exchange(0); }

  FakeTriton& fake_ = FakeTriton::get();
};

// A request of each route that asks a model, from a client with that key.
std::vector<uint64_t> tenants_by_http(int port, const std::string& key) {
  static constexpr std::pair<const char*, const char*> kRequests[] = {
      {"/v2/models/types/infer",
       R"({"inputs": [{"name": "count", "datatype": "INT32", "shape": [1, 1], "data": [1]}]})"},
      {"/v2/models/types/generate", R"({"count": 1})"},
      {"/v1/completions", R"({"model": "org/tiny", "prompt": "a", "max_tokens": 1})"},
      {"/v1/messages",
       R"({"model": "org/tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}]})"},
      {"/v1/embeddings", R"({"model": "org/tiny", "input": "a"})"}};
  std::vector<uint64_t> out;
  for (const auto& [path, body] : kRequests) {
    FakeTriton::get().last_tenant = 0;
    ask(port, "POST", path, body, key.empty() ? "" : fmt::format("x-api-key: {}\r\n", key));
    out.push_back(FakeTriton::get().last_tenant);
  }
  return out;
}

TEST_F(TenantTest, ByKeyOrByAddress) {
  fake_.script = {7, 8};
  HttpOptions options = local_options(/*metrics_port=*/0);
  options.openai.model_name = "org/tiny";
  options.admin = {.models = Peers::kAny, .settings = Peers::kAny};
  const auto open = start_front(options);
  ASSERT_NE(open, nullptr);
  for (const uint64_t tenant : tenants_by_http(open->http_port(), ""))
    EXPECT_EQ(tenant, kThisMachine);
  open->stop(std::chrono::seconds(60));

  options.api_keys = *ApiKeys::create({"one", "two"}, "");
  const auto keyed = start_front(options);
  ASSERT_NE(keyed, nullptr);
  std::set<uint64_t> all;
  for (const char* key : {"one", "two", "one"}) {
    const std::vector<uint64_t> tenants = tenants_by_http(keyed->http_port(), key);
    EXPECT_EQ(std::set(tenants.begin(), tenants.end()).size(), 1u) << key;
    all.insert(tenants.begin(), tenants.end());
  }
  EXPECT_EQ(all.size(), 2u);
  EXPECT_FALSE(all.contains(kThisMachine));

  // The same key over gRPC is the same tenant.
  GrpcOptions grpc;
  grpc.api_keys = options.api_keys;
  auto shared = std::make_shared<GrpcShared>();
  shared->methods = *make_methods(fake_server(), grpc, [] { return false; });
  shared->options = grpc;
  TestClient client(shared);
  const auto message = ProtoMessages().from_json(
      "inference.ModelInferRequest",
      R"({"model_name": "types", "inputs": [{"name": "count", "datatype": "INT32",
          "shape": ["1", "1"], "contents": {"int_contents": [1]}}]})");
  ASSERT_TRUE(message.ok()) << message.status();
  for (const char* key : {"one", "two"}) {
    take();
    client.call("/inference.GRPCInferenceService/ModelInfer", message->substr(kGrpcPrefixBytes),
                {{"authorization", fmt::format("Bearer {}", key)}});
    EXPECT_EQ(take(), tenants_by_http(keyed->http_port(), key).front()) << key;
  }
  keyed->stop(std::chrono::seconds(60));
}

}  // namespace
}  // namespace nereid::front
