#include "hub/urls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace nereid::hub {
namespace {

using ::testing::HasSubstr;

class UrlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto curl = load_curl();
    if (!curl.ok()) GTEST_SKIP() << curl.status();
    urls_.emplace(**curl);
  }
  std::string redirected(const std::string& from, const std::string& location) {
    const auto next = urls_->redirected(from, location);
    return next.ok() ? *next : "error: " + std::string(message(next.status()));
  }
  std::optional<Urls> urls_;
};

TEST_F(UrlsTest, Origins) {
  EXPECT_EQ(urls_->origin_of("https://Hub.example/a?b").value(), "https://hub.example:443");
  EXPECT_EQ(urls_->origin_of("http://[::1]:8080/").value(), "http://[::1]:8080");
  EXPECT_FALSE(urls_->origin_of("https://").ok());
}

TEST_F(UrlsTest, RedirectsThatMay) {
  EXPECT_EQ(redirected("https://a.example/x/y?q", "/z"), "https://a.example/z");
  EXPECT_EQ(redirected("https://a.example/x", "https://cdn.example/f?sig=1"),
            "https://cdn.example/f?sig=1");
  EXPECT_EQ(redirected("http://a.example/x", "https://b.example/"), "https://b.example/");
  EXPECT_EQ(redirected("http://a.example/x", "//b.example/y"), "http://b.example/y");
}

TEST_F(UrlsTest, RedirectsThatAreRefused) {
  for (const char* location :
       {"file:///etc/passwd", "ftp://a.example/x", "gopher://a.example/", "FILE:///etc/passwd"})
    EXPECT_THAT(redirected("https://a.example/x", location), HasSubstr("neither https nor http"))
        << location;
  EXPECT_THAT(redirected("https://a.example/x", "http://a.example/x"),
              HasSubstr("from https to http; refused"));
  EXPECT_THAT(redirected("https://a.example/x", "https://user:word@b.example/"),
              HasSubstr("with the name of a user"));
  for (const char* location : {"data:text/plain,x", "javascript:1", "https://", "//"})
    EXPECT_THAT(redirected("https://a.example/x", location), HasSubstr("refused")) << location;
  EXPECT_THAT(redirected("https://a.example/x", ""), HasSubstr("which is no URL"));
}

}  // namespace
}  // namespace nereid::hub
