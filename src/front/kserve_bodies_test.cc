// Bodies that are no JSON object, to every route of the KServe protocol that takes a body.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>

#include "front/testing/server_fixture.h"

namespace nereid::front {
namespace {

enum class Body {
  kObject,        // must be an object
  kMembers,       // an object, or an empty array
  kMaybeMembers,  // the same, or empty
  kUnread,        // nothing is wrong with any body
};

const std::map<std::string, Body> kBodies = {
    {"/v2/logging", Body::kMembers},
    {"/v2/trace/setting", Body::kMembers},
    {"/v2/models/{m}/trace/setting", Body::kMembers},
    {"/v2/repository/index", Body::kMaybeMembers},
    {"/v2/repository/{repo}/index", Body::kMaybeMembers},
    {"/v2/repository/models/{m}/load", Body::kMaybeMembers},
    {"/v2/repository/models/{m}/unload", Body::kUnread},
    {"/v2/repository/{repo}/models/{m}/load", Body::kUnread},
    {"/v2/repository/{repo}/models/{m}/unload", Body::kUnread},
    {"/v2/systemsharedmemory/region/{r}/register", Body::kMembers},
    {"/v2/cudasharedmemory/region/{r}/register", Body::kMembers},
    {"/v2/systemsharedmemory/register", Body::kUnread},
    {"/v2/cudasharedmemory/register", Body::kUnread},
    {"/v2/systemsharedmemory/unregister", Body::kUnread},
    {"/v2/cudasharedmemory/unregister", Body::kUnread},
    {"/v2/systemsharedmemory/region/{r}/unregister", Body::kUnread},
    {"/v2/cudasharedmemory/region/{r}/unregister", Body::kUnread},
    {"/v2/models/{m}/infer", Body::kObject},
    {"/v2/models/{m}/generate", Body::kObject},
    {"/v2/models/{m}/generate_stream", Body::kObject},
    {"/v2/models/{m}/versions/{v:digits}/infer", Body::kObject},
    {"/v2/models/{m}/versions/{v:digits}/generate", Body::kObject},
    {"/v2/models/{m}/versions/{v:digits}/generate_stream", Body::kObject},
};

// Body, and what the error calls it.
constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
    {"NaN", "NaN or Infinity"},
    {" Infinity\n", "NaN or Infinity"},
    {"-Infinity", "NaN or Infinity"},
    {"1", "an integer"},
    {"-2.5e3", "a number"},
    {"18446744073709551616", "a number"},
    {"123456789012345678901234567890123456789012345678901234567890", "a number"},
    {R"("x")", "a string"},
    {R"("")", "a string"},
    {"[{}]", "an array"},
    {"[NaN]", "an array"},
    {"null", "null"},
    {"true", "a boolean"},
};

class KserveBodiesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    FakeTriton::get().reset();
    HttpOptions options = local_options();
    options.admin = {.models = Peers::kAny, .settings = Peers::kAny};
    server_ = start_front(options);
    ASSERT_NE(server_, nullptr);
  }

  // "{m}" and such become names.
  Reply post(std::string path, std::string_view body) {
    for (const auto& [parameter, value] : {std::pair("{m}", "types"), std::pair("{v:digits}", "1"),
                                           std::pair("{repo}", "x"), std::pair("{r}", "x")})
      if (const size_t at = path.find(parameter); at != path.npos)
        path.replace(at, std::string_view(parameter).size(), value);
    return ask(server_->http_port(), "POST", path, body);
  }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(KserveBodiesTest, AllRoutesAreInTheTable) {
  size_t count = 0;
  for (const Router::Entry& route : server_->routes()) {
    if (route.method != "POST" || route.traits.errors != ErrorShape::kKserve) continue;
    EXPECT_TRUE(kBodies.contains(route.pattern)) << route.pattern;
    ++count;
  }
  EXPECT_EQ(count, kBodies.size());
}

TEST_F(KserveBodiesTest, OtherJsonIsRefusedByItsKind) {
  for (const auto& [path, body] : kBodies) {
    for (const auto& [text, kind] : kOthers) {
      const Reply reply = post(path, text);
      if (body == Body::kUnread) {
        const Reply usual = post(path, "{}");
        EXPECT_EQ(reply.status, usual.status) << path << " " << text;
        EXPECT_EQ(reply.body, usual.body) << path << " " << text;
        continue;
      }
      EXPECT_EQ(reply.status, 400) << path << " " << text << ": " << reply.body;
      EXPECT_EQ(reply.body,
                fmt::format(R"({{"error":"the request must be a JSON object, got {}"}})", kind))
          << path << " " << text;
    }
  }
}

TEST_F(KserveBodiesTest, NaNIsNoObjectOfParameters) {
  for (const auto& [path, body] : kBodies) {
    const bool has_parameters = body == Body::kObject || path.ends_with("{m}/load");
    if (!has_parameters || body == Body::kUnread) continue;
    const Reply reply = post(path, R"({"parameters": NaN})");
    EXPECT_EQ(reply.status, 400) << path;
    EXPECT_NE(reply.body.find("an object, got NaN or Infinity"), std::string::npos)
        << path << ": " << reply.body;
  }
}

TEST_F(KserveBodiesTest, AnEmptyArrayIsAnObjectWhereMembersMayBeAbsent) {
  for (const auto& [path, body] : kBodies) {
    for (const std::string_view text : {"[]", " [ ]\r\n"}) {
      const Reply reply = post(path, text), usual = post(path, "{}");
      if (body == Body::kObject) {
        EXPECT_EQ(reply.status, 400) << path;
        EXPECT_EQ(reply.body, R"({"error":"the request must be a JSON object, got an array"})");
      } else {
        EXPECT_EQ(reply.status, usual.status) << path;
        EXPECT_EQ(reply.body, usual.body) << path;
      }
    }
  }
}

TEST_F(KserveBodiesTest, AnEmptyBodyIsTakenWhereNothingMustBeSaid) {
  for (const auto& [path, body] : kBodies) {
    const Reply reply = post(path, "");
    if (body == Body::kObject || body == Body::kMembers) {
      EXPECT_EQ(reply.status, 400) << path << ": " << reply.body;
      EXPECT_NE(reply.body.find("failed to parse the request JSON buffer: "), std::string::npos)
          << path << ": " << reply.body;
    } else {
      EXPECT_EQ(reply.status, post(path, "{}").status) << path << ": " << reply.body;
    }
  }
}

}  // namespace
}  // namespace nereid::front
