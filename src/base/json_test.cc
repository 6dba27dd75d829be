#include "base/json.h"

#include <gtest/gtest.h>

namespace nereid {
namespace {

TEST(Json, ParsesADocument) {
  auto value = parse_json(R"({"a": [1, 2.5, "x"]})");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->at("a").as_array().size(), 3u);
}

TEST(Json, ErrorsSayWhere) {
  auto value = parse_json("{\"a\": 1,\n \"b\": }");
  ASSERT_FALSE(value.ok());
  EXPECT_NE(std::string(message(value.status())).find("line 2, column"), std::string::npos)
      << value.status();
  EXPECT_FALSE(parse_json("").ok());
  EXPECT_FALSE(parse_json("{} x").ok());
}

TEST(Json, NestingIsBounded) {
  EXPECT_TRUE(parse_json(std::string(100, '[') + std::string(100, ']')).ok());
  EXPECT_FALSE(parse_json(std::string(100000, '[')).ok());
}

}  // namespace
}  // namespace nereid
