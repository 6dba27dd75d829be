#include "front/http/web_pages.h"

#include <gmock/gmock.h>

namespace nereid::front {
namespace {

using ::testing::HasSubstr;

TEST(PlainHost, TakesOffPortCaseBracketsAndTheRootsDot) {
  const std::pair<const char*, const char*> cases[] = {
      {"localhost", "localhost"},
      {"LOCALHOST:8000", "localhost"},
      {"Local-Host.example.:443", "local-host.example"},
      {"127.0.0.1:1", "127.0.0.1"},
      {"[::1]:8000", "::1"},
      {"[0:0:0:0:0:0:0:1]", "::1"},
      {"[::1", ""},
      {"::1", ""},
      {"[localhost]", ""},
      {"[127.0.0.1]:1", ""},
      {"localhost:", "localhost"},
      {"localhost:80x", ""},
      {"local host", ""},
      {"user@localhost", ""},
      {"localhost/", ""},
      {"localhost..", "localhost."},
      {"evil.example:8000", "evil.example"},
      {"", ""}};
  for (const auto& [authority, host] : cases) EXPECT_EQ(plain_host(authority), host) << authority;
}

AllowedHosts hosts_of(const std::string& listens_on, const std::vector<std::string>& names = {}) {
  auto hosts = AllowedHosts::create(listens_on, names);
  EXPECT_TRUE(hosts.ok()) << hosts.status();
  return *std::move(hosts);
}

TEST(AllowedHosts, OnLoopbackItsNamesAlone) {
  for (const char* on : {"127.0.0.1", "localhost", "::1", "127.0.0.2"}) {
    const AllowedHosts hosts = hosts_of(on);
    for (const char* good : {"localhost", "localhost:12345", "LocalHost.:1", "127.0.0.1:8000",
                             "[::1]:8000", "127.0.0.2", on == std::string("::1") ? "[::1]" : on})
      EXPECT_TRUE(hosts.allows(good)) << on << " " << good;
    for (const char* bad : {"evil.example", "evil.example:8000", "localhost.evil.example",
                            "127.0.0.1.evil.example", "evil.localhost", "10.0.0.1", "0.0.0.0",
                            "localhost..", "", "[::1", "[::2]", "localhost:x", "evil@localhost"})
      EXPECT_FALSE(hosts.allows(bad)) << on << " " << bad;
  }
}

TEST(AllowedHosts, NamesWithoutADotAreNoPagesOfTheInternet) {
  const AllowedHosts hosts = hosts_of("127.0.0.1");
  for (const char* good : {"x", "Box:8000", "my_box", "triton."})
    EXPECT_TRUE(hosts.allows(good)) << good;
  for (const char* bad : {"x.y", "[fe80::1]", "box.local", ".", "x@y"})
    EXPECT_FALSE(hosts.allows(bad)) << bad;
}

TEST(AllowedHosts, NamesAdd) {
  const AllowedHosts more = hosts_of("127.0.0.1", {"Box.example", "10.0.0.7", "[fe80::1]"});
  for (const char* good : {"box.example:1", "10.0.0.7:8000", "[FE80::1]", "localhost"})
    EXPECT_TRUE(more.allows(good)) << good;
  EXPECT_FALSE(more.allows("other.example"));
  EXPECT_TRUE(hosts_of("127.0.0.1", {"*"}).allows("evil.example"));
  for (const char* bad : {"", "http://x", "x:80", "a b", "x/", "[::1", "a,b"})
    EXPECT_THAT(std::string(message(AllowedHosts::create("127.0.0.1", {bad}).status())),
                HasSubstr("neither * nor the name"))
        << bad;
}

TEST(AllowedHosts, OnOtherAddressesOnlyWhereNamed) {
  EXPECT_TRUE(hosts_of("0.0.0.0").allows("evil.example"));
  EXPECT_TRUE(hosts_of("::").allows(""));
  const AllowedHosts named = hosts_of("0.0.0.0", {"box.example"});
  EXPECT_TRUE(named.allows("box.example"));
  EXPECT_TRUE(named.allows("localhost:8000")) << "probes of the machine itself";
  EXPECT_FALSE(named.allows("evil.example"));
}

class PageTest : public ::testing::Test {
 protected:
  // The refusal, "" for none.
  std::string of(const char* method, Headers headers, Cost cost = Cost::kNothing,
                 std::string authority = "") {
    Request request;
    request.method = method;
    request.headers = std::move(headers);
    request.authority = std::move(authority);
    return page_refusal(request, cors_, hosts_, cost);
  }
  std::string post(const char* origin, const char* host = "localhost:8000") {
    return of("POST", {{"Host", host}, {"Origin", origin}}, Cost::kTokens);
  }

  AllowedHosts hosts_ = hosts_of("127.0.0.1");
  Cors cors_;
};

TEST_F(PageTest, TheHostIsChecked) {
  EXPECT_EQ(of("GET", {{"Host", "localhost"}}), "");
  EXPECT_EQ(of("GET", {}), "") << "HTTP/1.0";
  EXPECT_THAT(of("GET", {{"Host", "Evil.example:1"}}), HasSubstr("'evil.example'"));
  EXPECT_THAT(of("GET", {{"Host", "Evil.example:1"}}), HasSubstr("--allowed-host"));
  EXPECT_NE(of("GET", {{"Host", ""}}), "");
  EXPECT_NE(of("GET", {{"Host", "\"\xff"}}), "");
  // A target in absolute form replaces the Host header.
  EXPECT_NE(of("GET", {{"Host", "localhost"}}, Cost::kNothing, "evil.example"), "");
  EXPECT_EQ(of("GET", {{"Host", "evil.example"}}, Cost::kNothing, "localhost:1"), "");
}

TEST_F(PageTest, ForeignPagesChangeNothing) {
  for (const char* own : {"http://localhost:3000", "https://127.0.0.1", "http://[::1]:5"})
    EXPECT_EQ(post(own), "") << own;
  for (const char* foreign : {"http://evil.example", "null", "", "file://", "http://localhost.evil",
                              "http://user@localhost", "chrome-extension://abc", "evil"})
    EXPECT_THAT(post(foreign), HasSubstr("--http-cors-origin")) << foreign;
  const Headers evil = {{"Host", "localhost"}, {"Origin", "http://evil.example"}};
  for (const char* method : {"POST", "DELETE", "PUT"}) EXPECT_NE(of(method, evil), "") << method;
  for (const char* method : {"GET", "HEAD", "OPTIONS"}) EXPECT_EQ(of(method, evil), "") << method;
  EXPECT_NE(of("GET", evil, Cost::kTokens), "") << "it makes the model work";
  EXPECT_EQ(of("POST", {{"Host", "localhost"}}), "") << "no browser";
  cors_ = *Cors::create({"http://evil.example"});
  EXPECT_EQ(of("POST", evil), "");
  EXPECT_NE(post("http://evil.example:81"), "");
  cors_ = *Cors::create({"*"});
  EXPECT_EQ(post("null"), "");
}

TEST_F(PageTest, ThoseOfTheServerItselfDo) {
  hosts_ = hosts_of("0.0.0.0");
  EXPECT_EQ(post("http://box.example:8000", "box.example:8000"), "");
  EXPECT_EQ(post("http://Box.example", "box.example:80"), "");
  EXPECT_EQ(post("https://box.example", "box.example"), "") << "behind a proxy that speaks TLS";
  EXPECT_NE(post("http://box.example:3000", "box.example:8000"), "");
  EXPECT_NE(post("http://evil.example", "box.example:8000"), "");
}

TEST_F(PageTest, BrowsersSayWhereAPageStands) {
  const auto site = [&](const char* says, const char* origin) {
    Headers headers = {{"Host", "localhost"}, {"Sec-Fetch-Site", says}};
    if (*origin) headers.push_back({"Origin", origin});
    return of("POST", headers);
  };
  EXPECT_EQ(site("same-origin", "https://ui.example"), "") << "a proxy that changes Host";
  EXPECT_EQ(site("none", ""), "");
  EXPECT_NE(site("cross-site", ""), "");
  EXPECT_NE(site("same-site", "http://evil.example"), "");
  EXPECT_EQ(site("cross-site", "http://localhost:3000"), "");
}

}  // namespace
}  // namespace nereid::front
