// Forms, whole and hostile.
#include "front/http/multipart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace nereid::front {
namespace {

using ::testing::HasSubstr;

constexpr char kType[] = "multipart/form-data; boundary=XX";

std::string part(std::string_view name, std::string_view body, std::string_view more = "") {
  return "--XX\r\nContent-Disposition: form-data; name=\"" + std::string(name) + "\"" +
         std::string(more) + "\r\n\r\n" + std::string(body) + "\r\n";
}

std::string error_of(std::string_view body, std::string_view type = kType) {
  const auto parts = parse_form(type, body);
  EXPECT_FALSE(parts.ok()) << body.substr(0, 200);
  return std::string(message(parts.status()));
}

TEST(MultipartTest, FieldsAndFiles) {
  const std::string body =
      part("model", "whisper") +
      part("file", std::string("RIFF\0\r\n--X\r\n", 13),
           "; filename=\"../../etc/\\\"a\\\\b\\c.wav\"\r\nContent-Type: audio/wav") +
      part("empty", "") + part("list[]", "a") + part("list[]", "b") + "--XX--\r\n";
  const auto parts = parse_form(kType, body);
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 5u);
  EXPECT_EQ((*parts)[0].name, "model");
  EXPECT_EQ((*parts)[0].body, "whisper");
  EXPECT_FALSE((*parts)[0].file_name);
  EXPECT_EQ((*parts)[1].file_name, "../../etc/\"a\\b\\c.wav");
  EXPECT_EQ((*parts)[1].content_type, "audio/wav");
  EXPECT_EQ((*parts)[1].body.size(), 13u);
  EXPECT_EQ((*parts)[2].body, "");
  EXPECT_EQ((*parts)[4].body, "b");
}

TEST(MultipartTest, BoundariesAsClientsWriteThem) {
  const std::string body = part("a", "1") + "--XX--";
  for (const char* type :
       {"multipart/form-data; boundary=\"XX\"", "Multipart/Form-Data;boundary=XX",
        "multipart/form-data; charset=utf-8; boundary=XX;", "multipart/form-data ; Boundary=XX "})
    EXPECT_TRUE(parse_form(type, body).ok()) << type;
  EXPECT_TRUE(parse_form(kType, "\r\n" + body + "\r\nepilogue").ok());
  EXPECT_TRUE(parse_form(kType, "--XX--").ok());
  EXPECT_TRUE(
      parse_form(kType, "--XX  \r\nContent-Disposition: form-data; name=a\r\n\r\n--XX--").ok());
}

TEST(MultipartTest, HostileFormsAreRefusedByName) {
  const std::string good = part("a", "1");
  EXPECT_THAT(error_of(good, "application/json"), HasSubstr("must be multipart/form-data"));
  EXPECT_THAT(error_of(good, "multipart/form-data"), HasSubstr("needs one boundary"));
  EXPECT_THAT(error_of(good, "multipart/form-data; boundary"), HasSubstr("needs one boundary"));
  EXPECT_THAT(error_of(good, "multipart/form-data; boundary=a; boundary=b"),
              HasSubstr("needs one boundary"));
  EXPECT_THAT(error_of(good, "multipart/form-data; boundary=\"XX"), HasSubstr("one boundary"));
  EXPECT_THAT(error_of(good, "multipart/form-data; boundary="), HasSubstr("has 0 bytes"));
  EXPECT_THAT(error_of(good, "multipart/form-data; boundary=" + std::string(10000, 'x')),
              HasSubstr("has 10000 bytes; allowed are 1 to 70"));
  EXPECT_THAT(error_of(good, "multipart/form-data; boundary=\"a\x01\""), HasSubstr("allowed are"));
  EXPECT_THAT(error_of(""), HasSubstr("does not begin"));
  EXPECT_THAT(error_of("preamble\r\n" + good + "--XX--"), HasSubstr("does not begin"));
  EXPECT_THAT(error_of("--XX"), HasSubstr("cut off"));
  EXPECT_THAT(error_of("--XXY\r\n"), HasSubstr("cut off or malformed"));
  EXPECT_THAT(error_of(good), HasSubstr("no end: no boundary behind part 1"));
  EXPECT_THAT(error_of(good.substr(0, good.size() - 2)),
              HasSubstr("no end: no boundary behind part 1"));
  EXPECT_THAT(error_of(good.substr(0, 20)), HasSubstr("do not end within 4096 bytes"));
  EXPECT_THAT(error_of(good + "--XX garbage"), HasSubstr("malformed"));
  EXPECT_THAT(error_of("--XX\r\n\r\nbody\r\n--XX--"), HasSubstr("no Content-Disposition"));
  EXPECT_THAT(error_of("--XX\r\nContent-Disposition: form-data\r\n\r\n\r\n--XX--"),
              HasSubstr("needs one header"));
  EXPECT_THAT(error_of("--XX\r\nContent-Disposition: attachment; name=a\r\n\r\n\r\n--XX--"),
              HasSubstr("needs one header"));
  EXPECT_THAT(error_of(part("a", "1", "; name=\"b\"") + "--XX--"), HasSubstr("needs one header"));
  EXPECT_THAT(error_of(part("a", "1", "\r\nContent-Disposition: form-data; name=b") + "--XX--"),
              HasSubstr("needs one header"));
  EXPECT_THAT(error_of(part(std::string(300, 'n'), "1") + "--XX--"),
              HasSubstr("name of 300 bytes"));
  EXPECT_THAT(error_of(part("", "1") + "--XX--"), HasSubstr("name of 0 bytes"));
  EXPECT_THAT(error_of(part("a", "1", "\r\nX: " + std::string(5000, 'h')) + "--XX--"),
              HasSubstr("do not end within"));
  EXPECT_THAT(error_of(part("a", "1", "\r\nno colon") + "--XX--"), HasSubstr("without a colon"));
  EXPECT_THAT(error_of(part("a", "1", "\r\nContent-Type: multipart/mixed; boundary=Y") + "--XX--"),
              HasSubstr("is a form itself"));
  EXPECT_THAT(error_of(part("a", "MQ==", "\r\nContent-Transfer-Encoding: base64") + "--XX--"),
              HasSubstr("Content-Transfer-Encoding"));
  std::string many;
  for (int i = 0; i < 10000; ++i) many += good;
  EXPECT_THAT(error_of(many + "--XX--"), HasSubstr("more than the 100 parts"));
}

}  // namespace
}  // namespace nereid::front
