#include "front/protection/api_keys.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"

namespace nereid::front {
namespace {

namespace fs = std::filesystem;

class ApiKeysTest : public ::testing::Test {
 protected:
  ~ApiKeysTest() override { fs::remove(file_); }
  void write(const std::string& text) { ASSERT_TRUE(write_file_atomic(file_, text).ok()); }

  const fs::path file_ = fs::temp_directory_path() / fmt::format("nereid-keys.{}", ::getpid());
};

TEST_F(ApiKeysTest, TextsAndHashes) {
  // printf second | sha256sum
  write(
      "# people\n\nfirst \n"
      "sha256:16367aacb67a4a017c8da8ab95682ccb390863780f7114dda0a0e0c55644c7c4\n");
  const auto keys = ApiKeys::create({"given"}, file_);
  ASSERT_TRUE(keys.ok()) << keys.status();
  for (const char* key : {"first", "second", "given"}) EXPECT_TRUE((*keys)->find(key)) << key;
  for (const char* key : {"", "firs", "first ", "third", "# people", "Given"}) {
    EXPECT_FALSE((*keys)->find(key)) << key;
  }
}

TEST_F(ApiKeysTest, BadFilesAreNamed) {
  const auto error = [this] { return std::string(message(ApiKeys::create({}, file_).status())); };
  EXPECT_NE(error().find("No such file"), std::string::npos);
  write("# none\n");
  EXPECT_NE(error().find("has none"), std::string::npos);
  write("a\nsha256:12\n");
  EXPECT_NE(error().find("line 2: 'sha256:' and 64"), std::string::npos);
  EXPECT_FALSE(ApiKeys::create({""}, "").ok());
}

TEST_F(ApiKeysTest, LimitsOfKeys) {
  write("* concurrency=3\nslow\trequests_per_minute=2 concurrency=1\nplain\n");
  const auto keys = ApiKeys::create({"given"}, file_);
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_FALSE((*keys)->find("*"));
  EXPECT_FALSE((*keys)->find("slow\trequests_per_minute=2 concurrency=1"));
  EXPECT_EQ((*keys)->find("slow")->limits.requests_per_minute, 2);
  EXPECT_EQ((*keys)->find("slow")->limits.concurrency, 1);
  EXPECT_EQ((*keys)->find("plain")->limits.concurrency, 3);
  EXPECT_EQ((*keys)->find("given")->limits.concurrency, 3);
  EXPECT_EQ((*keys)->find("slow")->use, (*keys)->find("slow")->use);
  EXPECT_NE((*keys)->find("slow")->use, (*keys)->find("plain")->use);
  EXPECT_FALSE((*keys)->find("slow")->is_admin);
  write("a\nb with blanks\n");
  EXPECT_NE(std::string(message(ApiKeys::create({}, file_).status())).find("line 2: 'with': "),
            std::string::npos);
}

TEST_F(ApiKeysTest, AChangedFileIsReadAgain) {
  write("old\n");
  const auto keys = ApiKeys::create({}, file_);
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_TRUE((*keys)->find("old"));
  write("new\n");
  fs::last_write_time(file_, fs::last_write_time(file_) + std::chrono::seconds(2));
  for (int i = 0; i < 6000 && !(*keys)->find("new"); ++i) ::usleep(10000);
  EXPECT_TRUE((*keys)->find("new"));
  EXPECT_FALSE((*keys)->find("old"));
}

TEST(ApiKeys, Bearer) {
  EXPECT_EQ(ApiKeys::bearer("Bearer abc"), "abc");
  EXPECT_EQ(ApiKeys::bearer("bearer  abc "), "abc");
  EXPECT_EQ(ApiKeys::bearer("Basic abc"), "");
  EXPECT_EQ(ApiKeys::bearer("Bearer"), "");
  EXPECT_TRUE(same_secret("abc", "abc"));
  EXPECT_FALSE(same_secret("abc", "abd"));
  EXPECT_FALSE(same_secret("abc", "abcd"));
}

TEST_F(ApiKeysTest, AdministratorsAreNamed) {
  write("plain\nfirst admin\nsecond concurrency=2 admin\nadmin\nadministrator concurrency=1\n");
  const auto keys = ApiKeys::create({"both"}, file_, {"given", "both"});
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_TRUE((*keys)->are_for_callers());
  for (const char* key : {"first", "second", "given", "both"})
    EXPECT_TRUE((*keys)->find(key)->is_admin) << key;
  for (const char* key : {"plain", "admin", "administrator"})
    EXPECT_FALSE((*keys)->find(key)->is_admin) << key;
  EXPECT_EQ((*keys)->find("second")->limits.concurrency, 2);
  EXPECT_FALSE((*ApiKeys::create({}, "", {"given"}))->are_for_callers());
  EXPECT_FALSE(ApiKeys::create({}, "", {""}).ok());
  for (const char* line : {"x admin admin\n", "* admin\n", "x administrator\n", "x Admin\n"}) {
    write(line);
    EXPECT_FALSE(ApiKeys::create({}, file_).ok()) << line;
  }
}

}  // namespace
}  // namespace nereid::front
