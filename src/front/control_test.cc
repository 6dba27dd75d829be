// Settings of a server and the requests refused because of them, the same over HTTP and gRPC.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>

#include "base/file.h"
#include "front/grpc/messages.h"
#include "front/grpc/service.h"
#include "front/grpc/test_client.h"
#include "front/kserve/extensions.h"
#include "front/protection/api_keys.h"
#include "front/testing/server_fixture.h"

namespace nereid::front {
namespace {

constexpr char kSharedMemoryOffText[] =
    "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.";

// The rpcs of a server, called without sockets.
class ControlTest : public ::testing::Test {
 protected:
  void SetUp() override { FakeTriton::get().reset(); }

  // By default callers without keys may change settings and load models.
  void start(GrpcOptions grpc, HttpOptions http = {}) {
    grpc.admin = http.admin = {.models = Peers::kAny, .settings = Peers::kAny};
    auto shared = std::make_shared<GrpcShared>();
    auto methods = make_methods(fake_server(), grpc, [] { return false; });
    ASSERT_TRUE(methods.ok()) << methods.status();
    shared->methods = *std::move(methods);
    shared->options = grpc;
    client_ = std::make_unique<TestClient>(shared);
    http.host = "127.0.0.1";
    http.http_port = 0;
    http.metrics_port = -1;
    http.extensions = grpc.extensions;
    http_ = start_front(http);
    ASSERT_NE(http_, nullptr);
  }

  ClientReply call(const std::string& rpc, const std::string& json = "{}",
                   const TestClient::Headers& metadata = {}) {
    const ProtoMessages messages;
    const auto bytes = messages.from_json("inference." + rpc + "Request", json);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return client_->call("/inference.GRPCInferenceService/" + rpc, bytes->substr(kGrpcPrefixBytes),
                         metadata);
  }
  std::string answer_json(const std::string& rpc) {
    const ClientReply reply = call(rpc);
    if (reply.messages.size() != 1) return reply.headers.at("grpc-message");
    return *ProtoMessages().to_json("inference." + rpc + "Response", reply.messages[0]);
  }
  Reply get(std::string_view path) { return ask(http_->http_port(), "GET", path); }
  Reply post(std::string_view path, std::string_view body, std::string_view headers = "") {
    return ask(http_->http_port(), "POST", path, body, headers);
  }

  std::unique_ptr<TestClient> client_;
  std::unique_ptr<HttpServer> http_;
};

TEST_F(ControlTest, LogSettingsBeginAsTheServerWasStarted) {
  GrpcOptions grpc;
  grpc.extensions = std::make_shared<Extensions>(LogStart{3, "ISO8601", "/var/log/server"});
  start(grpc);
  const json::value seen = get("/v2/logging").json();
  EXPECT_EQ(seen.at("log_verbose_level").as_int64(), 3);
  EXPECT_EQ(seen.at("log_format").as_string(), "ISO8601");
  EXPECT_EQ(seen.at("log_file").as_string(), "/var/log/server");
  // Members absent from a change keep their values.
  EXPECT_TRUE(post("/v2/logging", "{}").json() == seen);
  const json::value settings = parse_json(answer_json("LogSettings"))->at("settings");
  EXPECT_EQ(settings.at("log_verbose_level").at("uint32_param").as_int64(), 3);
  EXPECT_EQ(settings.at("log_format").at("string_param").as_string(), "ISO8601");
  EXPECT_EQ(settings.at("log_file").at("string_param").as_string(), "/var/log/server");
}

TEST_F(ControlTest, SharedMemorySwitchedOff) {
  GrpcOptions grpc;
  grpc.allow_shared_memory = false;
  HttpOptions http;
  http.allow_shared_memory = false;
  start(grpc, http);
  for (const std::string kind : {"system", "cuda"}) {
    const std::string root = "/v2/" + kind + "sharedmemory";
    for (const Reply& reply :
         {get(root + "/status"), get(root + "/region/r/status"), post(root + "/unregister", ""),
          post(root + "/region/r/register", R"({"key": "/k", "byte_size": 4})")}) {
      EXPECT_EQ(reply.status, 501);
      EXPECT_EQ(reply.json().at("error").as_string(), kSharedMemoryOffText);
    }
  }
  for (const std::string kind : {"System", "Cuda"}) {
    for (const std::string action : {"Status", "Register", "Unregister"}) {
      const ClientReply reply = call(kind + "SharedMemory" + action);
      EXPECT_EQ(reply.headers.at("grpc-status"), "12") << kind << action;
      EXPECT_EQ(reply.headers.at("grpc-message"), kSharedMemoryOffText);
    }
  }
  EXPECT_EQ(call("ServerLive").headers.at("grpc-status"), "0");
  EXPECT_EQ(get("/v2/health/live").status, 200);
}

// A restricted API's switch is not visible to other callers.
TEST_F(ControlTest, RestrictionsComeBeforeSwitches) {
  GrpcOptions grpc;
  grpc.allow_shared_memory = false;
  grpc.restrictions = {{{"shared-memory"}, "key", "secret"}};
  HttpOptions http;
  http.allow_shared_memory = false;
  http.restrictions = {{{"shared-memory"}, "key", "secret"}};
  start(grpc, http);
  EXPECT_EQ(get("/v2/systemsharedmemory/status").status, 403);
  EXPECT_EQ(post("/v2/systemsharedmemory/unregister", "", "key: secret\r\n").status, 501);
  EXPECT_EQ(call("SystemSharedMemoryStatus").headers.at("grpc-status"), "14");
  const TestClient::Headers secret = {{"triton-grpc-protocol-key", "secret"}};
  EXPECT_EQ(call("SystemSharedMemoryStatus", "{}", secret).headers.at("grpc-status"), "12");
}

TEST_F(ControlTest, CallersShowAKey) {
  GrpcOptions grpc;
  HttpOptions http;
  grpc.api_keys = http.api_keys = *ApiKeys::create({"open sesame"}, "", {"master"});
  start(grpc, http);
  const std::string right = "Authorization: Bearer open sesame\r\n";
  for (const std::string& headers :
       {std::string(), std::string("Authorization: Bearer open\r\n"),
        std::string("Authorization: Basic open sesame\r\n"), std::string("X-API-Key: x\r\n")}) {
    const Reply refused = post("/v2/repository/index", "{}", headers);
    EXPECT_EQ(refused.status, 401) << headers;
    EXPECT_EQ(refused.body, R"({"error":"an API key is missing or not known"})");
    EXPECT_NE(refused.head.find("WWW-Authenticate: Bearer"), std::string::npos);
  }
  EXPECT_EQ(post("/v1/completions", "{}").json().at("error").at("message").as_string(),
            "an API key is missing or not known");
  EXPECT_EQ(post("/v2/repository/index", "{}", right).status, 200);
  EXPECT_EQ(post("/v2/repository/index", "{}", "X-API-Key: open sesame\r\n").status, 200);
  EXPECT_EQ(post("/v2/logging", "{}", right).status, 403);
  EXPECT_EQ(post("/v2/logging", "{}", "Authorization: Bearer master\r\n").status, 200);
  EXPECT_EQ(get("/v2/health/live").status, 200);
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(get("/ping").status, 200);
  EXPECT_EQ(get("/health/x").status, 401);
  EXPECT_EQ(get("/v2").status, 401);
  EXPECT_EQ(get("/nope").status, 401);

  EXPECT_EQ(call("LogSettings").headers.at("grpc-status"), "16");
  EXPECT_EQ(call("LogSettings", "{}", {{"authorization", "Bearer x"}}).headers.at("grpc-status"),
            "16");
  EXPECT_EQ(call("LogSettings", "{}", {{"authorization", "Bearer open sesame"}})
                .headers.at("grpc-status"),
            "0");
  EXPECT_EQ(call("ServerLive").headers.at("grpc-status"), "0");
  EXPECT_EQ(call("ServerMetadata").headers.at("grpc-status"), "16");
}

TEST_F(ControlTest, KeysHaveLimits) {
  const auto file = std::filesystem::temp_directory_path() / fmt::format("limits.{}", ::getpid());
  ASSERT_TRUE(write_file_atomic(file,
                                "slow requests_per_minute=2\n"
                                "counted tokens_per_minute=5\nfree\n")
                  .ok());
  GrpcOptions grpc;
  HttpOptions http;
  grpc.api_keys = http.api_keys = *ApiKeys::create({}, file);
  std::filesystem::remove(file);
  start(grpc, http);
  const auto says = [](const char* key) { return fmt::format("X-API-Key: {}\r\n", key); };
  // Refused bodies count as requests, GETs do not.
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(ask(http_->http_port(), "GET", "/v1/models", "", says("slow")).status, 200);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(post("/v1/completions", "{}", says("slow")).status, 400);
  const Reply refused = post("/v1/completions", "{}", says("slow"));
  EXPECT_EQ(refused.status, 429);
  EXPECT_NE(refused.head.find("Retry-After: 30\r\n"), std::string::npos) << refused.head;
  EXPECT_EQ(refused.json().at("error").at("type").as_string(), "rate_limit_error");
  EXPECT_EQ(refused.json().at("error").at("message").as_string(),
            "this API key may make 2 requests a minute, and has made them");
  EXPECT_EQ(post("/v2/models/types/generate", "{}", says("slow")).status, 429);
  EXPECT_EQ(post("/v2/repository/index", "{}", says("slow")).status, 200);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(post("/v1/completions", "{}", says("free")).status, 400);
  // A request whose tokens would not be counted.
  const Reply forbidden = post("/v2/models/types/generate", "{}", says("counted"));
  EXPECT_EQ(forbidden.status, 403);
  const auto status = [&](const char* rpc, const char* key) {
    return client_
        ->call(std::string("/inference.GRPCInferenceService/") + rpc, "",
               {{"authorization", fmt::format("Bearer {}", key)}})
        .headers.at("grpc-status");
  };
  EXPECT_EQ(status("ModelInfer", "slow"), "8");
  EXPECT_EQ(status("ModelStreamInfer", "slow"), "7");
  EXPECT_EQ(status("ModelInfer", "counted"), "7");
  EXPECT_NE(status("ModelInfer", "free"), "7");
  EXPECT_EQ(status("LogSettings", "slow"), "0");
}

// Browsers send a preflight without a key before a page's request.
TEST_F(ControlTest, WebPagesOfNamedOrigins) {
  HttpOptions http;
  http.cors_origins = {"https://a.example"};
  http.api_keys = *ApiKeys::create({"k"}, "");
  start({}, http);
  const int port = http_->http_port();
  const auto has = [](const Reply& reply, const char* header) {
    return reply.head.find(header) != std::string::npos;
  };
  const std::string asks =
      "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n";
  const Reply may =
      ask(port, "OPTIONS", "/v1/completions", "", "Origin: https://a.example\r\n" + asks);
  EXPECT_EQ(may.status, 204);
  EXPECT_TRUE(has(may, "Access-Control-Allow-Origin: https://a.example\r\n")) << may.head;
  EXPECT_TRUE(has(may, "Access-Control-Allow-Methods: GET, HEAD, POST, DELETE, OPTIONS\r\n"));
  EXPECT_TRUE(has(may, "Access-Control-Allow-Headers: authorization\r\n"));
  const Reply may_not = ask(port, "OPTIONS", "/v2", "", "Origin: https://b.example\r\n" + asks);
  EXPECT_EQ(may_not.status, 204);
  EXPECT_FALSE(has(may_not, "Access-Control-Allow")) << may_not.head;
  EXPECT_TRUE(has(may_not, "Vary: Origin\r\n"));
  // Responses and errors are readable by these pages only; a preflight is no authentication.
  const Reply refused = ask(port, "GET", "/v2", "", "Origin: https://a.example\r\n");
  EXPECT_EQ(refused.status, 401);
  EXPECT_TRUE(has(refused, "Access-Control-Allow-Origin: https://a.example\r\n"));
  EXPECT_EQ(ask(port, "OPTIONS", "/v2", "", "Origin: https://a.example\r\n").status, 401);
  EXPECT_FALSE(has(get("/v2/health/live"), "Access-Control"));

  http.cors_origins = {"*"};
  start({}, http);
  const Reply any =
      ask(http_->http_port(), "POST", "/nope", "", "Origin: null\r\nX-API-Key: k\r\n");
  EXPECT_TRUE(has(any, "Access-Control-Allow-Origin: *\r\n")) << any.head;
  http.cors_origins = {};
  start({}, http);
  EXPECT_FALSE(
      has(ask(http_->http_port(), "GET", "/v2", "", "Origin: null\r\n"), "Access-Control"));
}

TEST_F(ControlTest, LoadsBringNoSharedObjects) {
  start({});
  const auto refused = [this](const std::string& file, const std::string& base64) {
    const std::string key = "file:" + file;
    const Reply reply =
        post("/v2/repository/models/m/load",
             fmt::format(R"({{"parameters":{{"config":"{{}}","{}":"{}"}}}})", key, base64));
    return reply.status == 501 && reply.body.find("--allow-code-upload=true") != std::string::npos;
  };
  EXPECT_TRUE(refused("1/libtriton_x.so", "YQ=="));
  EXPECT_TRUE(refused("1/libtriton_x.so.1", "YQ=="));
  EXPECT_TRUE(refused("1/weights.bin", "f0VMRgIB"));  // begins as a shared object does
  EXPECT_FALSE(refused("1/model.bin", "YQ=="));
}

// Many loads at once queue, and all are answered.
TEST_F(ControlTest, LoadsTakeFewThreads) {
  start({});
  FakeTriton& fake = FakeTriton::get();
  fake.num_loaded = 0;
  fake.hold_loads = true;
  std::vector<int> clients;
  const std::string load = request_text("POST", "/v2/repository/models/m/load", "{}");
  for (int i = 0; i < 50; ++i) {
    clients.push_back(connect_to(http_->http_port()));
    ASSERT_EQ(send(clients.back(), load.data(), load.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(load.size()));
  }
  EXPECT_TRUE(eventually([&] { return fake.num_loading == 16; }));
  // An unload does not wait for loads; when it is answered all loads have been received.
  EXPECT_EQ(post("/v2/repository/models/m/unload", "").status, 501);
  EXPECT_EQ(fake.num_loading, 16);
  fake.hold_loads = false;
  for (const int fd : clients) {
    char answer[12];
    EXPECT_EQ(recv(fd, answer, sizeof answer, MSG_WAITALL), 12);
    EXPECT_EQ(std::string_view(answer, 12), "HTTP/1.1 501");
    close(fd);
  }
  EXPECT_EQ(fake.num_loaded, 50);
}

// Where the core refuses at once, the event loop calls it.
TEST_F(ControlTest, LoadsThatAreNotAllowedTakeNoThread) {
  HttpOptions http;
  http.extensions = std::make_shared<Extensions>(LogStart(), false, /*has_model_control=*/false);
  GrpcOptions grpc;
  grpc.extensions = http.extensions;
  start(grpc, http);
  std::set<int> threads;  // the threads before, none made for a load
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    threads.insert(std::stoi(task.path().filename()));
  EXPECT_EQ(post("/v2/repository/models/m/load", "").status, 501);
  EXPECT_TRUE(threads.contains(FakeTriton::get().load_thread));
  EXPECT_EQ(call("RepositoryModelLoad", R"({"model_name": "m"})").headers.at("grpc-status"), "12");
  EXPECT_TRUE(threads.contains(FakeTriton::get().load_thread));
}

// The C API would cut the name.
TEST_F(ControlTest, NamesHaveNoNulByte) {
  start({});
  const auto error = [this](const std::string& body) {
    const Reply reply = post("/v2/models/types/infer", body);
    EXPECT_EQ(reply.status, 400);
    return std::string(reply.json().at("error").as_string());
  };
  EXPECT_EQ(error(R"({"inputs":[{"name":"count\u0000x","shape":[1,1],"datatype":"INT32",
                     "data":[1]}]})"),
            "the input name 'count' has a NUL byte");
  EXPECT_EQ(error(R"({"id":"a\u0000b","inputs":[]})"), "the request id 'a' has a NUL byte");
  EXPECT_EQ(error(R"({"inputs":[],"outputs":[{"name":"o\u0000"}]})"),
            "the output name 'o' has a NUL byte");
  EXPECT_EQ(error(R"({"inputs":[],"parameters":{"p\u0000":1}})"),
            "the parameter name 'p' has a NUL byte");
}

TEST_F(ControlTest, OneHostOnly) {
  start({});
  const Reply reply = post("/v2/health/live", "", "Host: other\r\n");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.json().at("error").as_string(), "malformed HTTP request: more than one Host");
}

TEST_F(ControlTest, RegionsHaveBounds) {
  start({});
  const std::string key = fmt::format("/nereid-bounds-{}", ::getpid());
  const int fd = shm_open(key.c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_EQ(ftruncate(fd, 64), 0);
  const auto add = [&](int offset, int size) {
    return post("/v2/systemsharedmemory/region/r/register",
                fmt::format(R"({{"key":"{}","offset":{},"byte_size":{}}})", key, offset, size));
  };
  for (const auto& [offset, size] : {std::pair(0, 65), {1, 64}, {64, 1}, {65, 0}}) {
    const Reply reply = add(offset, size);
    EXPECT_EQ(reply.status, 400);
    EXPECT_NE(
        reply.body.find("failed to register shared memory region '" + key + "': invalid args"),
        reply.body.npos)
        << reply.body;
  }
  EXPECT_EQ(add(0, 64).status, 200);
  for (const auto& [offset, error] :
       {std::pair(64, "Invalid offset for shared memory region: 'r'"),
        {60, "Invalid offset + byte size for shared memory region"}}) {
    const Reply reply = post(
        "/v2/models/types/infer",
        fmt::format(R"({{"inputs":[{{"name":"count","shape":[1,2],"datatype":"INT32","parameters":
                         {{"shared_memory_region":"r","shared_memory_offset":{},
                           "shared_memory_byte_size":8}}}}]}})",
                    offset));
    EXPECT_EQ(reply.status, 400);
    EXPECT_NE(reply.body.find(error), reply.body.npos) << reply.body;
  }
  close(fd);
  shm_unlink(key.c_str());
}

// The client truncates its memory between registration and request.
TEST_F(ControlTest, ARegionThatShrinksFailsTheRequest) {
  start({});
  const std::string key = fmt::format("/nereid-control-{}", ::getpid());
  const int fd = shm_open(key.c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_EQ(ftruncate(fd, 8192), 0);
  EXPECT_EQ(post("/v2/systemsharedmemory/region/r/register",
                 fmt::format(R"({{"key":"{}","byte_size":8192}})", key))
                .status,
            200);
  ASSERT_EQ(ftruncate(fd, 0), 0);
  const std::string body = R"({"inputs":[{"name":"count","shape":[1,1],"datatype":"INT32",
      "parameters":{"shared_memory_region":"r","shared_memory_byte_size":4}}]})";
  const Reply first = post("/v2/models/types/infer", body);
  EXPECT_EQ(first.status, 400);
  EXPECT_EQ(first.json().at("error").as_string(),
            "the shared memory of input 'count' is smaller than the region that was registered");
  EXPECT_EQ(post("/v2/models/types/infer", body).status, 400);
  EXPECT_EQ(get("/v2/health/live").status, 200);
  close(fd);
  shm_unlink(key.c_str());
}

TEST_F(ControlTest, RegionsOfThePythonBackendAreNotForClients) {
  start({});
  for (const std::string slash : {"", "/"}) {
    const std::string key = slash + "triton_python_backend_shm_region_1";
    const std::string wanted = "cannot register shared memory region 'r' with key '" + key +
                               "' as the key contains the reserved prefix "
                               "'triton_python_backend_shm_region_'";
    const Reply reply = post("/v2/systemsharedmemory/region/r/register",
                             R"({"byte_size": 4, "key": ")" + key + "\"}");
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.json().at("error").as_string(), wanted);
    const ClientReply refused = call("SystemSharedMemoryRegister",
                                     R"({"name": "r", "byte_size": 4, "key": ")" + key + "\"}");
    EXPECT_EQ(refused.headers.at("grpc-status"), "3");
    EXPECT_EQ(refused.headers.at("grpc-message"), wanted);
  }
}

TEST_F(ControlTest, GenerateTellsTheLoadToWhoAsks) {
  start({});
  const auto load = [this](const std::string& path, const std::string& format) {
    const Reply reply = post("/v2/models/types/" + path, R"({"count": 1})",
                             "endpoint-load-metrics-format: " + format + "\r\n");
    EXPECT_EQ(reply.status, 200);
    const std::string name = "endpoint-load-metrics: ";
    const size_t at = reply.head.find(name);
    if (at == std::string::npos) return std::string();
    return reply.head.substr(at + name.size(), reply.head.find('\r', at) - at - name.size());
  };
  EXPECT_EQ(load("generate", "json"), "");  // no model has a cache
  const auto series = [](const char* model, const char* kind, int value) {
    return fmt::format(
        "nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type=\"{}\",model=\"{}\",version=\"1\"}}"
        " "
        "{}\n",
        kind, model, value);
  };
  FakeTriton& fake = FakeTriton::get();
  fake.metrics = "# TYPE nv_trt_llm_kv_cache_block_metrics gauge\n" + series("a", "max", 100) +
                 series("a", "used", 25) + series("a", "free", 75) + series("a", "tokens_per", 64);
  const std::string json =
      R"(JSON {"named_metrics":{"kv_cache_utilization":0.25,"max_token_capacity":6400}})";
  EXPECT_EQ(load("generate", "json"), json);
  EXPECT_EQ(load("generate_stream", "json"), json);
  EXPECT_EQ(load("generate", "text"),
            "TEXT named_metrics.kv_cache_utilization=0.25, named_metrics.max_token_capacity=6400");
  EXPECT_EQ(load("generate", "xml"), "");
  // The load of two caches is weighted by their tokens.
  fake.metrics += series("b", "max", 50) + series("b", "used", 50) + series("b", "tokens_per", 128);
  EXPECT_EQ(load("generate", "text"),
            "TEXT named_metrics.kv_cache_utilization=0.625, "
            "named_metrics.max_token_capacity=12800");
}

}  // namespace
}  // namespace nereid::front
