#include "base/json.h"

#include <gtest/gtest.h>

#include <array>

#include "base/json_exact.h"

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

TEST(Json, LongNumbersKeepTheirDigits) {
  const char* const same[] = {"123456789012345678901",
                              "-9223372036854775809",
                              "18446744073709551615",
                              "0.12345678901234567890",
                              "1.00000000000000000000001e5",
                              "1e400",
                              "-1e-400"};
  for (const char* text : same) {
    const auto value = parse_json_exact(text);
    ASSERT_TRUE(value.ok()) << text;
    EXPECT_EQ(long_number(*value), text);
  }
  const char* const others[] = {"9223372036854775807",
                                "-9223372036854775808",
                                "0.1",
                                "-0.0",
                                "1e5",
                                "0.00000000000000000000012345",
                                "12345.678901234567",
                                "null",
                                "\"123456789012345678901\"",
                                "{\"\u00ff\": \"1\"}",
                                "{}"};
  for (const char* text : others) {
    const auto value = parse_json_exact(text);
    ASSERT_TRUE(value.ok()) << text;
    EXPECT_EQ(long_number(*value), "") << text;
    EXPECT_EQ(*value, *parse_json(text)) << text;
  }
  EXPECT_FALSE(parse_json_exact("{\"\xFF\": \"1\"}").ok()) << "no text has the key of such numbers";
  for (const char* wrong : {"", "{} x", "[1", "[1,]", "123456789012345678901x"})
    EXPECT_EQ(parse_json_exact(wrong).status(), parse_json(wrong).status()) << wrong;
  EXPECT_FALSE(parse_json_exact(std::string(100000, '[')).ok());

  constexpr char kText[] = R"({"kept": [123456789012345678901], "a": {"kept": 123456789012345678901,
      "b": [18446744073709551615, "x"]}})";
  json::value value = *parse_json_exact(kText);
  round_long_numbers(value, std::array<std::string_view, 1>{"kept"});
  EXPECT_EQ(long_number(value.at("kept").at(0)), "123456789012345678901");
  EXPECT_EQ(value.at("a"), parse_json(kText)->at("a"));
  round_long_numbers(value);
  EXPECT_EQ(value, *parse_json(kText));
}

TEST(Json, NestingIsBounded) {
  EXPECT_TRUE(parse_json(std::string(100, '[') + std::string(100, ']')).ok());
  EXPECT_FALSE(parse_json(std::string(100000, '[')).ok());
}

}  // namespace
}  // namespace nereid
