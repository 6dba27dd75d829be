// Bodies in files.
#include "front/http/spool.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

namespace nereid::front {
namespace {

TEST(SpoolTest, KeepsWhatItTakes) {
  Spool spool;
  std::string all;
  for (int i = 0; i < 50; ++i) {
    std::string text(10007 * static_cast<size_t>(i), static_cast<char>('a' + i % 26));
    all += text;
    ASSERT_TRUE(spool.take(text).ok());
    EXPECT_TRUE(text.empty());
  }
  EXPECT_EQ(spool.size(), all.size());
  std::shared_ptr<const SpooledBody> body;
  {
    Spool moved(std::move(spool));
    auto finished = moved.finish();
    ASSERT_TRUE(finished.ok()) << finished.status();
    body = *std::move(finished);
  }
  EXPECT_EQ(body->bytes(), all);  // outlives the file
  Spool empty;
  EXPECT_EQ((*empty.finish())->bytes(), "");
}

TEST(SpoolTest, LeavesNothingBehindAndNamesWhatFails) {
  const std::filesystem::path dir = ::testing::TempDir() + "/spool_test";
  std::filesystem::create_directories(dir);
  const char* const before = std::getenv("TMPDIR");
  const std::string old = before ? before : "";
  ::setenv("TMPDIR", dir.c_str(), 1);
  Spool spool;
  std::string text = "abc";
  EXPECT_TRUE(spool.take(text).ok());
  EXPECT_TRUE(std::filesystem::is_empty(dir));
  ::setenv("TMPDIR", "/proc/nowhere", 1);
  text = "abc";
  EXPECT_TRUE(Spool().take(text).ok());  // the next folder
  before ? ::setenv("TMPDIR", old.c_str(), 1) : ::unsetenv("TMPDIR");
}

}  // namespace
}  // namespace nereid::front
