#include "front/http/router.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace nereid::front {
namespace {

// An exchange that keeps what is sent; everything runs at once.
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

Router make_router() {
  Router router([](const Request&, int status, std::string_view message) {
    return Response{status, "text/plain", {}, std::string(message)};
  });
  auto echo = [](std::string tag) {
    return [tag](const ExchangePtr& x) {
      std::string body = tag;
      for (auto& [k, v] : x->request().params) body += ";" + k + "=" + v;
      x->send({200, "text/plain", {}, body});
    };
  };
  router.add("GET", "/v2", echo("root"));
  router.add("GET", "/v2/models/stats", echo("stats"));
  router.add("GET", "/v2/models/{m}", echo("model"));
  router.add("GET", "/v2/models/{m}/versions/{v:digits}", echo("version"));
  router.add("POST", "/v2/models/{m}/generate", echo("generate"));
  router.add("GET", "/v1/models/{id*}", echo("card"));
  router.add("GET", "/throws", [](const ExchangePtr&) { throw std::runtime_error("x"); });
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
  router.set_guard([](const Request& request) -> std::optional<Response> {
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

TEST(Router, HandlerExceptionIs500) { EXPECT_EQ(ask("GET", "/throws").status, 500); }

TEST(PercentDecode, DecodesOrRefuses) {
  EXPECT_EQ(percent_decode("a%2Fb%41+"), "a/bA+");
  for (const char* bad : {"%", "%4", "%zz", "a%00b", "%g1"}) {
    EXPECT_EQ(percent_decode(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace nereid::front
