// Patterns of headers forwarded as request parameters.
#include "front/http/header_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "front/http/message.h"

namespace nereid::front {
namespace {

bool matches(const std::string& pattern, const std::string& name) {
  return (*header_filter(pattern))(name);
}

TEST(HeaderFilter, IsFoundInAnyCaseUnlessThePatternSays) {
  EXPECT_TRUE(matches("MY_HEADER.*", "my_header_1"));
  EXPECT_FALSE(matches("(?-i)MY_HEADER.*", "my_header_1"));
  EXPECT_TRUE(matches("(?-i)MY_HEADER.*", "MY_HEADER_1"));
  EXPECT_TRUE(matches("header", "my_header_1")) << "a part of the name is enough";
  EXPECT_FALSE(matches("^header", "my_header_1"));
}

TEST(HeaderFilter, NoneAndMalformed) {
  EXPECT_EQ(*header_filter(""), nullptr);
  const auto refused = header_filter("x(");
  EXPECT_THAT(message(refused.status()), testing::HasSubstr("'x('"));
}

TEST(ShownKey, IsTheOneOfEitherHeader) {
  const auto shown = [](Headers headers) {
    Request request;
    request.headers = std::move(headers);
    return std::string(shown_key(request));
  };
  EXPECT_EQ(shown({{"x-api-key", "k"}}), "k");
  EXPECT_EQ(shown({{"authorization", "bearer k"}, {"X-API-Key", "other"}}), "k");
  EXPECT_EQ(shown({{"Authorization", "Basic abc"}, {"X-API-Key", "k"}}), "k");
  EXPECT_EQ(shown({{"Authorization", "Basic abc"}}), "");
}

}  // namespace
}  // namespace nereid::front
