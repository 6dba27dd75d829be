#include "base/base64.h"

#include <gtest/gtest.h>

namespace nereid {
namespace {

TEST(Base64, Decodes) {
  EXPECT_EQ(*decode_base64(""), "");
  EXPECT_EQ(*decode_base64("YWI="), "ab");
  EXPECT_EQ(*decode_base64("YWI"), "ab");
  EXPECT_EQ(*decode_base64("+/8="), "\xfb\xff");
  EXPECT_EQ(*decode_base64("-_8="), "\xfb\xff");
}

TEST(Base64, RefusesWhatIsNot) {
  for (const char* text : {"a===", "YWI==", "Y!I=", "YW\xc3\xbc", "=", "=YWI"})
    EXPECT_FALSE(decode_base64(text).ok()) << text;
}

}  // namespace
}  // namespace nereid
