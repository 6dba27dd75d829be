// GET /: the web page for browsers, and what programs get instead.
#include <gmock/gmock.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

#include <algorithm>
#include <regex>

#include "front/http/compression.h"
#include "front/protection/api_keys.h"
#include "front/testing/server_fixture.h"

namespace nereid::front {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kBrowser[] = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";
constexpr char kProgram[] = "Accept: */*\r\n";

std::string header(const Reply& reply, const std::string& name) {
  const size_t at = reply.head.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 4;
  return reply.head.substr(begin, reply.head.find("\r\n", begin) - begin);
}

std::string hash_between(const std::string& text, const std::string& open,
                         const std::string& close) {
  const size_t begin = text.find(open) + open.size();
  const std::string part = text.substr(begin, text.find(close, begin) - begin);
  unsigned char hash[SHA256_DIGEST_LENGTH], base64[64];
  SHA256(reinterpret_cast<const unsigned char*>(part.data()), part.size(), hash);
  EVP_EncodeBlock(base64, hash, sizeof hash);
  return fmt::format("'sha256-{}'", reinterpret_cast<const char*>(base64));
}

class WebPageTest : public ServerTest {
 protected:
  // The answer to GET / (or `method`) of a server with these options.
  static Reply root(OpenAiOptions openai, const std::string& headers, const char* method = "GET",
                    std::shared_ptr<ApiKeys> keys = nullptr) {
    HttpOptions options = local_options(/*metrics_port=*/0);
    options.openai = std::move(openai);
    options.api_keys = std::move(keys);
    return ask(start_front(options)->http_port(), method, "/", "", headers);
  }
  static std::shared_ptr<ApiKeys> keys() { return *ApiKeys::create({"right"}, "", {}); }
};

TEST_F(WebPageTest, BrowsersGetIt) {
  const Reply page = root({.web_page = true}, kBrowser);
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(header(page, "Content-Type"), "text/html; charset=utf-8");
  EXPECT_EQ(header(page, "Cache-Control"), "no-cache");
  EXPECT_THAT(header(page, "Vary"), HasSubstr("Accept"));
  EXPECT_EQ(header(page, "X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(header(page, "Referrer-Policy"), "no-referrer");
  EXPECT_THAT(page.body, HasSubstr("<!doctype html>"));
  EXPECT_LT(page.body.size(), 300u << 10);
  const Reply head = root({.web_page = true}, kBrowser, "HEAD");
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(header(head, "Content-Length"), std::to_string(page.body.size()));
  EXPECT_EQ(header(head, "ETag"), header(page, "ETag"));
}

TEST_F(WebPageTest, ItsPolicyAllowsItsOwnTextOnly) {
  const Reply page = root({.web_page = true}, kBrowser);
  const std::string policy = header(page, "Content-Security-Policy");
  for (const std::string& part :
       {std::string("default-src 'none'"), std::string("connect-src 'self'"),
        std::string("frame-ancestors 'none'"), std::string("require-trusted-types-for 'script'"),
        "script-src " + hash_between(page.body, "<script type=\"module\">", "</script>"),
        "style-src " + hash_between(page.body, "<style>", "</style>")})
    EXPECT_THAT(policy, HasSubstr(part + ";"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  EXPECT_THAT(policy, Not(HasSubstr("http")));
  // Nothing that the policy would refuse, and nothing of another server.
  for (const char* text : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
                           "eval(", " style=\"", "https://", "@import", "<link rel=\"stylesheet\""})
    EXPECT_THAT(page.body, Not(HasSubstr(text)));
  EXPECT_FALSE(std::regex_search(page.body, std::regex("<[a-z]+[^>]* on[a-z]+=")));
  EXPECT_FALSE(std::regex_search(page.body, std::regex("@[a-z_]+\\.(js|css)@")));
}

TEST_F(WebPageTest, CopiesOfIt) {
  const OpenAiOptions on = {.web_page = true};
  const Reply page = root(on, kBrowser);
  const std::string tag = header(page, "ETag");
  const Reply same = root(on, fmt::format("{}If-None-Match: \"x\", {}\r\n", kBrowser, tag));
  EXPECT_EQ(same.status, 304);
  EXPECT_EQ(same.body, "");
  EXPECT_EQ(header(same, "ETag"), tag);
  EXPECT_EQ(header(same, "Content-Length"), "");
  EXPECT_EQ(root(on, fmt::format("{}If-None-Match: \"x\"\r\n", kBrowser)).status, 200);
  const Reply packed = root(on, fmt::format("{}Accept-Encoding: gzip, br\r\n", kBrowser));
  EXPECT_EQ(header(packed, "Content-Encoding"), "gzip");
  EXPECT_NE(header(packed, "ETag"), tag);
  EXPECT_LT(packed.body.size(), page.body.size() / 2);
  BudgetShare share;
  const auto unpacked = decompress(packed.body, Encoding::kGzip, 1 << 20, share);
  ASSERT_TRUE(unpacked.ok()) << unpacked.status();
  EXPECT_EQ(*unpacked, page.body);
}

TEST_F(WebPageTest, ProgramsGetWhatTheyGetWithoutIt) {
  for (const bool ollama : {false, true})
    for (const bool shows_base_url : {false, true})
      for (const std::string headers : {"", kProgram, "Accept: application/json\r\n"}) {
        OpenAiOptions options = {.ollama = ollama, .shows_base_url = shows_base_url};
        const Reply without = root(options, headers);
        const Reply browser = root(options, kBrowser);
        EXPECT_EQ(browser.status, without.status);
        options.web_page = true;
        const Reply with = root(options, headers);
        EXPECT_EQ(with.status, without.status);
        EXPECT_EQ(with.status, ollama ? 200 : 404);
        const std::regex port("localhost:\\d+");
        EXPECT_EQ(std::regex_replace(with.body, port, ""),
                  std::regex_replace(without.body, port, ""));
        EXPECT_EQ(header(with, "Content-Type"), header(without, "Content-Type"));
        EXPECT_EQ(header(with, "Content-Security-Policy"), "");
      }
}

TEST_F(WebPageTest, NeedsNoKeyButANameOfTheServer) {
  EXPECT_EQ(root({.web_page = true}, kBrowser, "GET", keys()).status, 200);
  EXPECT_EQ(root({.ollama = true}, kBrowser, "GET", keys()).status, 401);
  EXPECT_EQ(root({.web_page = true}, kBrowser, "POST", keys()).status, 405);
  HttpOptions options = local_options(/*metrics_port=*/0);
  options.openai.web_page = true;
  const auto server = start_front(options);
  const int fd = connect_to(server->http_port());
  EXPECT_TRUE(
      send_all(fd, fmt::format("GET / HTTP/1.1\r\nHost: evil.example\r\n{}\r\n", kBrowser)));
  char head[12] = {};
  EXPECT_EQ(recv(fd, head, sizeof head, MSG_WAITALL), 12);
  close(fd);
  EXPECT_EQ(std::string(head + 9, 3), "403");
}

}  // namespace
}  // namespace nereid::front
