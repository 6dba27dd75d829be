#include "cli/repository/repository.h"

#include <gtest/gtest.h>

namespace nereid::cli {
namespace {

TEST(Repository, FillsEveryPlaceholder) {
  EXPECT_EQ(*fill_template("a ${x} b ${y}${x}", {{"x", "1"}, {"y", "${z}"}}), "a 1 b ${z}1");
  EXPECT_EQ(*fill_template("", {}), "");
}

TEST(Repository, EscapesPathsForProtobufText) {
  EXPECT_EQ(escape_text(R"(/a "b"\c)"), R"(/a \"b\"\\c)");
  EXPECT_EQ(escape_text("a\nb"), "a\\nb");
}

TEST(Repository, NamesWhatIsMissing) {
  const auto filled = fill_template("${one} ${two} ${one}", {});
  ASSERT_FALSE(filled.ok());
  EXPECT_EQ(message(filled.status()), "template: no value for one, two");
}

}  // namespace
}  // namespace nereid::cli
