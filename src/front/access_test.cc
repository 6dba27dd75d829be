// Every route and every rpc of a full server against its protection.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <tuple>

#include "base/file.h"
#include "base/testing/written_part.h"
#include "front/grpc/service.h"
#include "front/grpc/test_client.h"
#include "front/protection/api_keys.h"
#include "front/testing/server_fixture.h"

namespace nereid::front {
namespace {

using ::testing::HasSubstr;
using Entry = Router::Entry;

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

// A path that matches the pattern.
std::string path_of(const Entry& route) {
  std::string path = route.pattern;
  for (const auto& [parameter, value] :
       {std::pair("{m}", "types"), std::pair("{v:digits}", "1"), std::pair("{id*}", "org/tiny"),
        std::pair("{id}", "resp_x"), std::pair("{repo}", "x"), std::pair("{r}", "x")})
    path = replaced(path, parameter, value);
  EXPECT_EQ(path.find('{'), path.npos) << path;
  return path;
}

std::string name_of(const Entry& route) { return route.method + " " + route.pattern; }

// Checks that the body has the error in the shape of that API.
void expect_shape(const Reply& reply, ErrorShape shape, const std::string& where) {
  const StatusOr<json::value> parsed = parse_json(reply.body);
  ASSERT_TRUE(parsed.ok() && parsed->is_object()) << where << ": " << reply.body;
  const json::object& body = parsed->get_object();
  ASSERT_TRUE(body.contains("error")) << where << ": " << reply.body;
  const json::value& error = body.at("error");
  if (shape == ErrorShape::kKserve || shape == ErrorShape::kOllama) {
    EXPECT_TRUE(error.is_string() && body.size() == 1) << where << ": " << reply.body;
    return;
  }
  ASSERT_TRUE(error.is_object() && error.get_object().contains("type")) << where << reply.body;
  const std::string type(error.at("type").as_string());
  if (shape == ErrorShape::kOpenAi) {
    EXPECT_EQ(body.at("object").as_string(), "error") << where;
    return;
  }
  // Source: docs.anthropic.com/en/api/errors.
  const std::map<int, std::string> types = {
      {401, "authentication_error"},  {403, "permission_error"},  {404, "not_found_error"},
      {405, "invalid_request_error"}, {413, "request_too_large"}, {429, "rate_limit_error"}};
  EXPECT_EQ(body.at("type").as_string(), "error") << where;
  EXPECT_EQ(type, types.at(reply.status)) << where;
}

class AccessTest : public ::testing::Test {
 protected:
  void SetUp() override { FakeTriton::get().reset(); }
  void TearDown() override {
    if (server_) server_->stop(std::chrono::seconds(60));
    std::filesystem::remove(file_);
  }

  void start(HttpOptions options) {
    if (server_) server_->stop(std::chrono::seconds(60));
    options.host = "127.0.0.1";
    options.http_port = 0;
    options.metrics_port = 0;
    options.max_body_bytes = 20000;
    options.openai.model_name = "org/tiny";
    options.openai.ollama = true;
    options.openai.web_page = true;
    server_ = start_front(options);
    ASSERT_NE(server_, nullptr);
  }
  // Options with which every client has the same rights.
  static HttpOptions open() {
    HttpOptions options;
    options.admin = {.models = Peers::kAny, .settings = Peers::kAny};
    return options;
  }
  std::shared_ptr<ApiKeys> keys(const std::string& lines) {
    EXPECT_TRUE(write_file_atomic(file_, lines).ok());
    auto all = ApiKeys::create({}, file_);
    EXPECT_TRUE(all.ok()) << all.status();
    return *all;
  }
  Reply send(const Entry& route, std::string_view headers = "", std::string_view body = "{}") {
    return ask(server_->http_port(), route.method, path_of(route), body, headers);
  }
  // Copied, since a test may start another server.
  std::vector<Entry> routes() const { return server_->routes(); }

  const std::filesystem::path file_ =
      std::filesystem::temp_directory_path() / fmt::format("nereid-access.{}", ::getpid());
  std::unique_ptr<HttpServer> server_;
};

TEST_F(AccessTest, RestrictedApisTakeInTheirRoutes) {
  start(open());
  const std::vector<Entry> all = routes();
  EXPECT_GT(all.size(), 50u);
  for (const std::string_view api : kApiNames) {
    HttpOptions options = open();
    options.restrictions = {{{std::string(api)}, "x-secret", "abc"}};
    start(options);
    for (const Entry& route : all) {
      if (name_of(route.traits.api) != api) {
        // One route of each other API suffices.
        if (route.method == "GET" && route.traits.cost == Cost::kNothing) {
          EXPECT_NE(send(route).status, 403) << name_of(route) << " for " << api;
        }
        continue;
      }
      for (const char* headers : {"", "x-secret: ab\r\n"}) {
        const Reply reply = send(route, headers);
        EXPECT_EQ(reply.status, 403) << name_of(route);
        EXPECT_THAT(reply.body, HasSubstr("expecting header 'x-secret'"));
        expect_shape(reply, route.traits.errors, name_of(route));
      }
      // The same for another method, and for HEAD.
      const std::string other = route.method == "GET" ? "HEAD" : "PATCH";
      EXPECT_EQ(ask(server_->http_port(), other, path_of(route)).status, 403) << name_of(route);
    }
  }
}

TEST_F(AccessTest, KeysAreAskedForInEachShape) {
  HttpOptions options = open();
  options.api_keys = *ApiKeys::create({"right"}, "", {"master"});
  start(options);
  for (const Entry& route : routes()) {
    const bool is_free = route.traits.access == Access::kAnybody;
    for (const char* headers : {"", "Authorization: Bearer wrong\r\n", "x-api-key: wrong\r\n",
                                "Authorization: Basic right\r\n"}) {
      const Reply reply = send(route, headers);
      EXPECT_EQ(reply.status == 401, !is_free) << name_of(route) << " " << headers;
      if (reply.status != 401) continue;
      EXPECT_THAT(reply.head, HasSubstr("WWW-Authenticate: Bearer\r\n"));
      expect_shape(reply, route.traits.errors, name_of(route));
    }
    for (const char* headers : {"Authorization: Bearer master\r\n", "x-api-key: master\r\n",
                                "Authorization: Basic x\r\nX-Api-Key: master\r\n"}) {
      const Reply reply = send(route, headers);
      EXPECT_NE(reply.status, 401) << name_of(route) << " " << headers;
      EXPECT_NE(reply.status, 403) << name_of(route) << " " << headers;
    }
  }
}

TEST_F(AccessTest, LimitsHoldForWhatCosts) {
  start(open());
  const std::vector<Entry> all = routes();
  std::string lines;
  for (size_t i = 0; i < all.size(); ++i)
    lines += fmt::format("r{} admin requests_per_minute=1\nt{} tokens_per_minute=5 admin\n", i, i);
  HttpOptions options = open();
  options.api_keys = keys(lines);
  start(options);
  for (size_t i = 0; i < all.size(); ++i) {
    const Entry& route = all[i];
    const Cost cost = route.traits.cost;
    const auto key = [&](char kind) { return fmt::format("x-api-key: {}{}\r\n", kind, i); };
    EXPECT_NE(send(route, key('r')).status, 429) << name_of(route);
    const Reply again = send(route, key('r'));
    EXPECT_EQ(again.status == 429, cost != Cost::kNothing) << name_of(route);
    if (again.status == 429) {
      EXPECT_THAT(again.head, HasSubstr("Retry-After: 60\r\n"));
      expect_shape(again, route.traits.errors, name_of(route));
    }
    EXPECT_EQ(send(route, key('t')).status == 403, cost == Cost::kUncounted) << name_of(route);
  }
}

// Routes that compute have a cost, whatever their names.
TEST_F(AccessTest, NoInferenceIsFree) {
  start(open());
  for (const Entry& route : routes())
    if (route.traits.api == Api::kInference && route.method == "POST") {
      EXPECT_NE(route.traits.cost, Cost::kNothing) << name_of(route);
    }
}

TEST_F(AccessTest, AdministratorsShowTheirKey) {
  HttpOptions options;
  options.api_keys = keys("plain\nmaster admin\n");
  start(options);
  const auto is_admins = [](const Entry& route) {
    return route.traits.access == Access::kModels || route.traits.access == Access::kSettings;
  };
  size_t num = 0;
  for (const Entry& route : routes()) {
    const Reply reply = send(route, "x-api-key: plain\r\n");
    EXPECT_EQ(reply.status == 403, is_admins(route)) << name_of(route);
    EXPECT_NE(send(route, "x-api-key: master\r\n").status, 403) << name_of(route);
    if (!is_admins(route)) continue;
    ++num;
    EXPECT_THAT(reply.body, HasSubstr("--admin-key"));
    expect_shape(reply, route.traits.errors, name_of(route));
  }
  EXPECT_EQ(num, 9u);
  // The secret of the restricted API suffices: callers need no key besides.
  HttpOptions restricted;
  restricted.api_keys = *ApiKeys::create({}, "", {"master"});
  restricted.restrictions = {{{"logging", "trace", "model-repository"}, "x-secret", "abc"}};
  start(restricted);
  for (const Entry& route : routes()) {
    if (!is_admins(route)) {
      EXPECT_NE(send(route, "x-secret: abc\r\n").status, 401) << name_of(route);
      continue;
    }
    const int status = send(route, "x-secret: abc\r\n").status;
    EXPECT_TRUE(status != 401 && status != 403) << name_of(route) << status;
  }
}

TEST_F(AccessTest, WithoutKeysByWhereACallerIs) {
  const auto statuses = [&](Peers models, Peers settings, std::string_view headers = "") {
    HttpOptions options;
    options.admin = {.models = models, .settings = settings};
    start(options);
    std::string out;
    for (const Entry& route : routes()) {
      if (route.traits.access != Access::kModels && route.traits.access != Access::kSettings)
        continue;
      const bool is_refused = send(route, headers).status == 403;
      const char letter = route.traits.access == Access::kModels ? 'm' : 's';
      if (is_refused && out.find(letter) == out.npos) out += letter;
    }
    return out;
  };
  EXPECT_EQ(statuses(Peers::kNone, Peers::kNone), "ms");
  EXPECT_EQ(statuses(Peers::kLoopback, Peers::kNone), "s");
  EXPECT_EQ(statuses(Peers::kLoopback, Peers::kLoopback), "");
  EXPECT_EQ(statuses(Peers::kLoopback, Peers::kLoopback, "X-Forwarded-For: 192.0.2.1\r\n"), "ms")
      << "a proxy on this machine speaks for others";
  EXPECT_EQ(statuses(Peers::kAny, Peers::kLoopback, "Forwarded: for=192.0.2.1\r\n"), "s");
}

TEST_F(AccessTest, WhatNoHandlerSeesHasTheShapeOfItsApi) {
  start(open());
  const std::string large(20001, ' ');
  for (const Entry& route : routes()) {
    const Reply reply = send(route, "", large);
    EXPECT_EQ(reply.status, 413) << name_of(route);
    expect_shape(reply, route.traits.errors, name_of(route));
    const Reply method = ask(server_->http_port(), "PATCH", path_of(route));
    EXPECT_EQ(method.status, 405) << name_of(route);
    expect_shape(method, route.traits.errors, name_of(route));
  }
  using enum ErrorShape;
  const std::tuple<const char*, const char*, ErrorShape> paths[] = {
      {"/v1/messages/count", "", kAnthropic},
      {"/v1/messages/batches/x", "", kAnthropic},
      {"/v1/nope", "", kOpenAi},
      {"/v1/nope", "anthropic-version: 2023-06-01\r\n", kAnthropic},
      {"/v1", "", kOpenAi},
      {"/v1/chat/nope", "", kOpenAi},
      {"/api/nope", "", kOllama},
      {"/api", "", kOllama},
      {"/v2/nope", "", kKserve},
      {"/v2/models/types/nope", "", kKserve},
      {"/rerank/nope", "", kOpenAi},
      {"/nope", "", kKserve},
      {"/%73core", "", kKserve},
      {"//score", "", kKserve}};
  for (const auto& [path, headers, shape] : paths) {
    const Reply reply = ask(server_->http_port(), "POST", path, "{}", headers);
    EXPECT_EQ(reply.status, 404) << path;
    expect_shape(reply, shape, path);
  }
}

TEST_F(AccessTest, PagesOfOthersAreRefusedOnBothPorts) {
  start(open());
  const int http = server_->http_port(), metrics = server_->metrics_port();
  const auto with_host = [](int port, const char* path, const char* host) {
    const int fd = connect_to(port);
    const std::string text =
        fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", path, host);
    EXPECT_TRUE(send_all(fd, text));
    char head[12] = {};
    EXPECT_EQ(recv(fd, head, sizeof head, MSG_WAITALL), 12);
    close(fd);
    return std::string(head + 9, 3);
  };
  for (const auto& [port, path] : {std::pair(http, "/v1/models"), std::pair(metrics, "/metrics")}) {
    EXPECT_EQ(with_host(port, path, "evil.example"), "403");
    EXPECT_EQ(with_host(port, path, "127.0.0.1:1"), "200");
    EXPECT_EQ(with_host(port, path, "LOCALHOST.:9"), "200");
  }
  for (const Entry& route : routes()) {
    const Reply reply = send(route, "Origin: http://evil.example\r\n");
    const bool is_safe = route.method == "GET" && route.traits.cost == Cost::kNothing;
    EXPECT_EQ(reply.status == 403, !is_safe) << name_of(route);
    if (!is_safe) expect_shape(reply, route.traits.errors, name_of(route));
  }
  HttpOptions named = open();
  named.allowed_hosts = {"evil.example"};
  named.cors_origins = {"http://evil.example"};
  start(named);
  EXPECT_EQ(with_host(server_->http_port(), "/v1/models", "evil.example"), "200");
  EXPECT_EQ(with_host(server_->metrics_port(), "/metrics", "evil.example"), "200");
  EXPECT_EQ(
      ask(server_->http_port(), "POST", "/v1/completions", "{}", "Origin: http://evil.example\r\n")
          .status,
      400);
}

// --- gRPC

MethodTable methods_of(const GrpcOptions& options) {
  auto methods = make_methods(fake_server(), options, [] { return false; });
  EXPECT_TRUE(methods.ok()) << methods.status();
  return *std::move(methods);
}

// Statuses of all rpcs by path; "began" for streams that begin.
std::map<std::string, std::string> statuses(const GrpcOptions& options,
                                            const TestClient::Headers& metadata = {}) {
  std::map<std::string, std::string> out;
  auto shared = std::make_shared<GrpcShared>();
  shared->methods = methods_of(options);
  shared->options = options;
  TestClient client(shared);
  for (const auto& [path, method] : shared->methods) {
    const ClientReply reply = client.call(path, "", metadata);
    const auto status = reply.headers.find("grpc-status");
    out[path] = status == reply.headers.end() ? "began" : status->second;
  }
  return out;
}

TEST_F(AccessTest, RpcsAreProtectedToo) {
  const MethodTable methods = methods_of({});
  EXPECT_GT(methods.size(), 20u);
  for (const std::string_view api : kApiNames) {
    GrpcOptions options;
    options.restrictions = {{{std::string(api)}, "secret", "abc"}};
    for (const auto& [path, status] : statuses(options))
      EXPECT_EQ(status == "14", name_of(methods.at(path).protection.api) == api)
          << path << " for " << api << ": " << status;
  }
  GrpcOptions options;
  options.api_keys =
      keys("plain\nmaster admin\none requests_per_minute=1\ncounted tokens_per_minute=5\n");
  const auto with = [&](const char* key) {
    return statuses(options, {{"authorization", fmt::format("Bearer {}", key)}});
  };
  for (const auto& [path, status] : statuses(options))
    EXPECT_EQ(status == "16", methods.at(path).protection.access != Access::kAnybody) << path;
  // A settings request without settings only reads.
  for (const auto& [path, status] : with("plain"))
    EXPECT_EQ(status == "7", methods.at(path).protection.access == Access::kModels) << path;
  for (const auto& [path, status] : with("master")) EXPECT_NE(status, "7") << path;
  size_t num_costly = 0, num_refused = 0;
  for (const auto& [path, method] : methods) num_costly += method.protection.cost != Cost::kNothing;
  for (const auto& [path, status] : with("counted"))
    num_refused += status == "7" && methods.at(path).protection.cost == Cost::kUncounted;
  EXPECT_EQ(num_refused, num_costly);
}

TEST_F(AccessTest, SettingsChangeByAdministratorsAlone) {
  GrpcOptions options;
  options.api_keys = keys("plain\nmaster admin\n");
  auto shared = std::make_shared<GrpcShared>();
  shared->methods = methods_of(options);
  shared->options = options;
  TestClient client(shared);
  // map<string, value>: log_info is false; trace_rate is "1".
  const std::string log = "\x0a\x0e\x0a\x08log_info\x12\x02\x08" + std::string(1, '\0');
  const std::string trace =
      "\x0a\x11\x0a\x0atrace_rate\x12\x03\x0a\x01"
      "1";
  const auto status = [&](const char* rpc, const std::string& bytes, const char* key) {
    return client
        .call(std::string("/inference.GRPCInferenceService/") + rpc, bytes,
              {{"authorization", fmt::format("Bearer {}", key)}})
        .headers.at("grpc-status");
  };
  for (const auto& [rpc, bytes] :
       {std::pair("LogSettings", log), std::pair("TraceSetting", trace)}) {
    EXPECT_EQ(status(rpc, bytes, "plain"), "7") << rpc;
    EXPECT_NE(status(rpc, bytes, "master"), "7") << rpc;
    EXPECT_EQ(status(rpc, "", "plain"), "0") << rpc;
  }
}

// --- docs/security.md

constexpr std::string_view kBegin = "<!-- begin of what access_test writes -->\n";
constexpr std::string_view kEnd = "<!-- end of what access_test writes -->\n";

std::string row(const std::string& name, const Protection& p, std::string_view errors) {
  constexpr const char* kWho[] = {"anybody", "callers", "administrators", "administrators"};
  constexpr const char* kTakes[] = {"", "request", "request, tokens", "request (no tokens)"};
  return fmt::format("| `{}` | {} | {} | {} | {} |\n", name, name_of(p.api),
                     kWho[static_cast<size_t>(p.access)], kTakes[static_cast<size_t>(p.cost)],
                     errors);
}

TEST_F(AccessTest, TableOfTheDocsIsWhatTheCodeSays) {
  start(open());
  std::string table =
      "| Route or rpc | API | Who | Takes of a key's limits | Errors |\n|---|---|---|---|---|\n";
  constexpr std::string_view kShapes[] = {"KServe", "OpenAI", "Anthropic", "Ollama"};
  for (const Entry& route : routes())
    table += row(name_of(route), route.traits, kShapes[static_cast<size_t>(route.traits.errors)]);
  std::map<std::string, Protection> rpcs;
  for (const auto& [path, method] : methods_of({})) rpcs.emplace(path, method.protection);
  for (const auto& [path, protection] : rpcs) table += row(path.substr(1), protection, "gRPC");
  expect_written_part("/docs/security.md", kBegin, kEnd, table,
                      "NEREID_WRITE_DOCS=1 front_test --gtest_filter='AccessTest.Table*'");
}

}  // namespace
}  // namespace nereid::front
