#include "front/http/json_text.h"
#include "base/json_exact.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

namespace nereid::front {
namespace {

std::string number(double v) {
  std::string out;
  append_json_double(out, v);
  return out;
}

TEST(JsonText, DoublesLookAsTheStockServerPrintsThem) {
  EXPECT_EQ(number(0.0), "0.0");
  EXPECT_EQ(number(-0.0), "-0.0");
  EXPECT_EQ(number(1.5), "1.5");
  EXPECT_EQ(number(static_cast<double>(0.1f)), "0.10000000149011612");
  EXPECT_EQ(number(1e300), "1e300");
  EXPECT_EQ(number(static_cast<double>(1e30f)), "1.0000000150474662e30");
  EXPECT_EQ(number(std::numeric_limits<double>::quiet_NaN()), "NaN");
  EXPECT_EQ(number(-std::numeric_limits<double>::infinity()), "-Infinity");
}

TEST(JsonText, StringsAreEscaped) {
  std::string out;
  append_json_string(out, std::string_view("a\"b\\c\n\t\x01\0z\xff", 11));
  EXPECT_EQ(out, "\"a\\\"b\\\\c\\n\\t\\u0001\\u0000z\xff\"");
  EXPECT_EQ(kserve_error_body("it's \"x\""), "{\"error\":\"it's \\\"x\\\"\"}");
}

TEST(JsonText, ValuesAreCompactAndReadable) {
  std::string out;
  append_json(out, json::parse(R"({"a": [1, 0.5, "x\n", null, true, {}], "b": {"c": -2}})"));
  EXPECT_EQ(out, R"({"a":[1,0.5,"x\n",null,true,{}],"b":{"c":-2}})");
  out.clear();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  append_json(out, json::array{kInfinity, -kInfinity, std::nan("")});
  EXPECT_EQ(out, "[1e999,-1e999,null]") << "valid JSON, whatever numbers a text had";
  EXPECT_TRUE(parse_json(out).ok());
}

TEST(JsonText, LongNumbersKeepTheirDigits) {
  constexpr char kText[] = R"({"a":[123456789012345678901,{"b":0.12345678901234567890}]})";
  EXPECT_EQ(json_text(*parse_json_exact(kText)), kText);
  EXPECT_EQ(json_kind_name(*parse_json_exact("123456789012345678901")), "a number");
}

TEST(JsonText, DuplicateKeys) {
  EXPECT_EQ(duplicate_key(R"({"a": 1, "b": {"a": 2}, "c": [{"x": 1}, {"x": "a"}], "d": "a:"})"),
            std::nullopt);
  EXPECT_EQ(duplicate_key(R"({"a": 1, "b": 2, "a": 3})"), "a");
  EXPECT_EQ(duplicate_key(R"([{"y": {"z": 1 , "z" : 2}, "x": 1}])"), "z");
  EXPECT_EQ(duplicate_key(R"({"a\"b": 1, "a\u0022b": 2})"), "a\"b");
  EXPECT_EQ(duplicate_key(R"({"in": {"x": 1}, "x": 2, "in": 3})"), "in");
  EXPECT_EQ(duplicate_key("7"), std::nullopt);
  std::string many = "{";
  for (int i = 0; i < 40; ++i) many += fmt::format("\"k{}\": {{\"k0\": 0}}, ", i);
  EXPECT_EQ(duplicate_key(many + "\"k40\": 0}"), std::nullopt);
  EXPECT_EQ(duplicate_key(many + "\"k31\": 0}"), "k31");
}

}  // namespace
}  // namespace nereid::front
