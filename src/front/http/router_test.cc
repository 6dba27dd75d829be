#include "front/http/router.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace nereid::front {
namespace {

// An exchange that records the answer; all work runs at once.
class Recorder final : public Exchange {
 public:
  Recorder(std::string method, std::string path) {
    request_.method = std::move(method);
    request_.path = std::move(path);
  }
  Request& request() override { return request_; }
  void post(std::function<void()> work) override { work(); }
  void send(Response r) override { response = std::move(r); }
  void begin_stream(Response r, std::string) override { response = std::move(r); }
  void write(std::string_view text) override { response.body += text; }
  void end() override {}
  void on_disconnect(std::function<void()>) override {}
  bool disconnected() const override { return false; }

  Response response;

 private:
  Request request_;
};

constexpr RouteTraits kPlain = {Api::kMetadata, Access::kAnybody, Cost::kNothing,
                                ErrorShape::kKserve};

Router make_router() {
  Router router([](ErrorShape, int status, std::string_view message) {
    return Response{status, "text/plain", {}, std::string(message)};
  });
  auto echo = [](std::string tag) {
    return [tag](const ExchangePtr& x) {
      std::string body = tag;
      for (auto& [k, v] : x->request().params) body += ";" + k + "=" + v;
      x->send({200, "text/plain", {}, body});
    };
  };
  router.add("GET", "/v2", kPlain, echo("root"));
  router.add("GET", "/v2/models/stats", kPlain, echo("stats"));
  router.add("GET", "/v2/models/{m}", kPlain, echo("model"));
  router.add("GET", "/v2/models/{m}/versions/{v:digits}", kPlain, echo("version"));
  router.add("POST", "/v2/models/{m}/generate", kPlain, echo("generate"));
  router.add("GET", "/v1/models/{id*}", kPlain, echo("card"));
  router.add("GET", "/throws", kPlain, [](const ExchangePtr&) { throw std::runtime_error("x"); });
  return router;
}

Response ask(std::string method, std::string path) {
  auto x = std::make_shared<Recorder>(std::move(method), std::move(path));
  make_router().handle(x);
  return x->response;
}

TEST(Router, MatchesLiteralsAndParameters) {
  EXPECT_EQ(ask("GET", "/v2").body, "root");
  EXPECT_EQ(ask("GET", "/v2/models/stats").body, "stats");
  EXPECT_EQ(ask("GET", "/v2/models/a%20b").body, "model;m=a%20b");
  EXPECT_EQ(ask("GET", "/v2/models/x/versions/01").body, "version;m=x;v=01");
  EXPECT_EQ(ask("GET", "/v1/models/org/name").body, "card;id=org/name");
  EXPECT_EQ(ask("HEAD", "/v2").body, "root");
}

TEST(Router, UnknownPathIs404) {
  for (const char* path : {"", "/", "/v2/", "/v3", "/v2/models/", "/v2/models/x/versions/abc",
                           "/v2/models/x/versions/-1", "/v2/models/x/", "/v1/models/", "//v2", "v2",
                           "/v2/models//generate"}) {
    EXPECT_EQ(ask("GET", path).status, 404) << path;
  }
}

TEST(Router, APathBehindAWrongBaseUrlIsToldTheRightOne) {
  Router router = make_router();
  const auto none = [](const ExchangePtr&) {};
  for (const char* path : {"/v1/chat/completions", "/v1/messages"})
    router.add("POST", path, kPlain, none);
  router.add("GET", "/v1/models", kPlain, none);
  const auto said = [&](std::string path) {
    auto x = std::make_shared<Recorder>("POST", std::move(path));
    router.handle(x);
    EXPECT_EQ(x->response.status, 404);
    return x->response.body;
  };
  const std::string kBase = "? The client's base URL is the address of the server";
  const std::string kChat =
      "Not Found: did you mean /v1/chat/completions" + kBase + " followed by /v1";
  for (const char* path :
       {"/v1/v1/chat/completions", "/chat/completions", "/openai/v1/chat/completions",
        "/v1/chat/completions/chat/completions", "/api/chat/completions"})
    EXPECT_EQ(said(path), kChat) << path;
  EXPECT_EQ(said("/v1/v1/models"),
            "Not Found: did you mean /v1/models" + kBase + " followed by /v1");
  EXPECT_EQ(said("/v1/v1/messages"), "Not Found: did you mean /v1/messages" + kBase);
  EXPECT_EQ(said("/v1/v2"), "Not Found: did you mean /v2" + kBase);
  for (const char* path : {"/", "//", "/nope", "/v2/nope", "/v2/v1/models", "/v1/nope/nope"})
    EXPECT_EQ(said(path), "Not Found") << path;
}

TEST(Router, WrongMethodNamesTheRightOnes) {
  const Response r = ask("DELETE", "/v2/models/x/generate");
  EXPECT_EQ(r.status, 405);
  ASSERT_NE(find_header(r.headers, "allow"), nullptr);
  EXPECT_EQ(*find_header(r.headers, "allow"), "POST, OPTIONS");
  const Response o = ask("OPTIONS", "/v2");
  EXPECT_EQ(o.status, 204);
  EXPECT_EQ(*find_header(o.headers, "Allow"), "GET, HEAD, OPTIONS");
}

TEST(Router, AGuardSeesEveryRequestAndChangesNothingElse) {
  Router router = make_router();
  router.set_guard([](const Request& request, const Target&) -> std::optional<Response> {
    if (request.path != "/v2") return std::nullopt;
    return Response{403, "text/plain", {}, "no"};
  });
  const auto status = [&](std::string method, std::string path) {
    auto x = std::make_shared<Recorder>(std::move(method), std::move(path));
    router.handle(x);
    return x->response;
  };
  for (const char* method : {"GET", "HEAD", "POST", "DELETE", "OPTIONS"})
    EXPECT_EQ(status(method, "/v2").status, 403) << method;
  EXPECT_EQ(status("GET", "/v2/models/x").status, 200);
  const Response options = status("OPTIONS", "/v2/models/x/generate");
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(*find_header(options.headers, "Allow"), "POST, OPTIONS");
}

// An unknown path has the protection of the nearest route.
TEST(Router, GuardsAndErrorsGoByTheRoute) {
  Router router([](ErrorShape shape, int status, std::string_view) {
    return Response{status, "text/plain", {}, std::to_string(static_cast<int>(shape))};
  });
  const auto add = [&](const char* method, const char* pattern, Api api, ErrorShape shape) {
    router.add(method, pattern, {api, Access::kCallers, Cost::kTokens, shape},
               [](const ExchangePtr& x) { x->send({}); });
  };
  add("GET", "/v1/models/{id*}", Api::kMetadata, ErrorShape::kOpenAi);
  add("POST", "/v1/messages", Api::kInference, ErrorShape::kAnthropic);
  add("POST", "/v1/models/{m}/run", Api::kInference, ErrorShape::kOllama);
  std::string seen;
  router.set_guard([&](const Request&, const Target& target) -> std::optional<Response> {
    seen = !target.traits
               ? "none"
               : fmt::format("{} {} {} {}", name_of(target.traits->api),
                             static_cast<int>(target.errors), target.has_path, target.has_handler);
    return std::nullopt;
  });
  const auto target = [&](std::string method, std::string path, Headers headers = {}) {
    auto x = std::make_shared<Recorder>(std::move(method), std::move(path));
    x->request().headers = std::move(headers);
    router.handle(x);
    return fmt::format("{}: {}", seen, x->response.status);
  };
  EXPECT_EQ(target("POST", "/v1/messages"), "inference 2 true true: 200");
  EXPECT_EQ(target("GET", "/v1/messages"), "inference 2 true false: 405");
  EXPECT_EQ(target("HEAD", "/v1/models/a/run"), "metadata 1 true true: 200");
  EXPECT_EQ(target("POST", "/v1/models/a/run"), "inference 3 true true: 200");
  EXPECT_EQ(target("POST", "/v1/messages/count"), "inference 2 false false: 404");
  EXPECT_EQ(target("POST", "/v1/nope"), "inference 2 false false: 404") << "the shortest";
  EXPECT_EQ(target("POST", "/v2/models"), "none: 404");
  EXPECT_EQ(target("POST", ""), "none: 404");
  EXPECT_EQ(target("GET", "/v1/models/x", {{"Anthropic-Version", "2023-06-01"}}),
            "metadata 2 true true: 200");
}

TEST(Router, HandlerExceptionIs500) { EXPECT_EQ(ask("GET", "/throws").status, 500); }

TEST(PercentDecode, DecodesOrRefuses) {
  EXPECT_EQ(percent_decode("a%2Fb%41+"), "a/bA+");
  for (const char* bad : {"%", "%4", "%zz", "a%00b", "%g1"}) {
    EXPECT_EQ(percent_decode(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace nereid::front
