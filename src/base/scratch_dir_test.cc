#include "base/scratch_dir.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <optional>

#include "base/file.h"

namespace nereid {
namespace {

namespace fs = std::filesystem;

class ScratchDirTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/scratch.XXXXXX";
    dir_ = ::mkdtemp(name.data());
    if (const char* old = std::getenv("TMPDIR")) old_ = old;
    ::setenv("TMPDIR", dir_.c_str(), 1);
  }
  void TearDown() override {
    old_ ? ::setenv("TMPDIR", old_->c_str(), 1) : ::unsetenv("TMPDIR");
    fs::remove_all(dir_);
  }

  fs::path dir_;
  std::optional<std::string> old_;
};

TEST_F(ScratchDirTest, IsEmptyAndGoesWithItsOwner) {
  fs::path path;
  {
    const auto made = ScratchDir::create();
    ASSERT_TRUE(made.ok()) << made.status();
    path = made->path();
    EXPECT_EQ(path.parent_path(), dir_);
    EXPECT_TRUE(fs::is_empty(path));
    ASSERT_TRUE(write_file_atomic(path / "a/b", "x").ok());
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(ScratchDirTest, WhatNobodyHoldsIsRemoved) {
  const auto held = ScratchDir::create();
  ASSERT_TRUE(held.ok()) << held.status();
  for (const char* name : {"nereid-scratch-old/in", "nereid-scratch-young", "other-old"})
    fs::create_directories(dir_ / name);
  const auto hour_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (const char* name : {"nereid-scratch-old", "other-old"})
    fs::last_write_time(dir_ / name, hour_ago);
  fs::last_write_time(held->path(), hour_ago);
  const auto next = ScratchDir::create();
  ASSERT_TRUE(next.ok());
  EXPECT_FALSE(fs::exists(dir_ / "nereid-scratch-old"));
  // Young: its owner may not have locked it yet.
  EXPECT_TRUE(fs::exists(dir_ / "nereid-scratch-young"));
  EXPECT_TRUE(fs::exists(dir_ / "other-old"));
  EXPECT_TRUE(fs::exists(held->path()));
}

TEST_F(ScratchDirTest, AnotherPlaceIsTaken) {
  ::setenv("TMPDIR", (dir_ / "missing").c_str(), 1);
  const auto made = ScratchDir::create();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_NE(made->path().parent_path(), dir_ / "missing");
}

}  // namespace
}  // namespace nereid
