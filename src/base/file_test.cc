#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/mapped_file.h"

namespace {

// Calls of fsync() and rename(), in order.
std::vector<std::string> disk_calls;

}  // namespace

extern "C" int fsync(int fd) {
  struct stat info = {};
  ::fstat(fd, &info);
  disk_calls.push_back(S_ISDIR(info.st_mode) ? "sync folder" : "sync file");
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  disk_calls.push_back("rename");
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace nereid {
namespace {

class FileTest : public testing::Test {
 protected:
  std::filesystem::path dir_ = std::filesystem::path(testing::TempDir()) / "nereid_file_test";
  void SetUp() override { std::filesystem::remove_all(dir_); }
  void TearDown() override { std::filesystem::remove_all(dir_); }
};

// A FIFO without a writer: a reader that opened it as a file would block for ever.
TEST_F(FileTest, OnlyRegularFilesAreRead) {
  std::filesystem::create_directories(dir_);
  const auto fifo = dir_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(message(read_file(fifo).status()), fifo.string() + ": is not a regular file");
  EXPECT_EQ(message(MappedFile::open(fifo).status()), fifo.string() + ": is not a regular file");
  EXPECT_EQ(message(read_file("/dev/zero").status()), "/dev/zero: is not a regular file");
  EXPECT_EQ(message(read_file(dir_).status()), dir_.string() + ": is a directory");
}

TEST_F(FileTest, PointersOfGitLfsAreNotTheFile) {
  const auto path = dir_ / "model.safetensors";
  std::string text =
      "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, 'a') +
      "\nsize 5000000000\n";
  ASSERT_TRUE(write_file_atomic(path, text).ok());
  EXPECT_EQ(message(read_file(path, 4096).status()),
            path.string() +
                ": is a Git LFS pointer, not the file itself; fetch it with `git lfs pull` in its "
                "folder, or the whole model with `hf download`");
  EXPECT_FALSE(MappedFile::open(path).ok());
  text += std::string(1024, ' ');
  ASSERT_TRUE(write_file_atomic(path, text).ok());
  EXPECT_EQ(*read_file(path, 4096), text);
}

TEST_F(FileTest, RoundTripCreatesFoldersAndLeavesNoTemporary) {
  const auto path = dir_ / "a" / "b.bin";
  ASSERT_TRUE(write_file_atomic(path, std::string_view("x\0y", 3)).ok());
  EXPECT_EQ(*read_file(path), std::string_view("x\0y", 3));
  auto mapped = MappedFile::open(path);
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ(std::memcmp(mapped->bytes().data(), "x\0y", 3), 0);
  int files = 0;
  for ([[maybe_unused]] auto& entry : std::filesystem::directory_iterator(dir_ / "a")) ++files;
  EXPECT_EQ(files, 1);
}

// After a power cut either the new file is there whole, or the old one.
TEST_F(FileTest, WhatIsRenamedIsOnTheDisk) {
  ::setenv("NEREID_FSYNC", "0", 1);
  disk_calls.clear();
  ASSERT_TRUE(write_file_atomic(dir_ / "a.bin", "x").ok());
  EXPECT_EQ(disk_calls, std::vector<std::string>{"rename"});
  ::unsetenv("NEREID_FSYNC");
  disk_calls.clear();
  ASSERT_TRUE(write_file_atomic(dir_ / "b.bin", "x").ok());
  const std::vector<std::string> expected = {"sync file", "rename", "sync folder"};
  EXPECT_EQ(disk_calls, expected);
  ASSERT_TRUE(write_file_atomic(dir_ / "new" / "sub" / "c.bin", "x").ok());
  std::filesystem::create_symlink("/nowhere", dir_ / "new" / "link");
  disk_calls.clear();
  ASSERT_TRUE(rename_durably(dir_ / "new", dir_ / "final").ok());
  const std::vector<std::string> folder = {"sync file", "sync folder", "sync folder", "rename",
                                           "sync folder"};
  EXPECT_EQ(disk_calls, folder);
  EXPECT_EQ(*read_file(dir_ / "final" / "sub" / "c.bin"), "x");
  EXPECT_FALSE(rename_durably(dir_ / "none", dir_ / "final").ok());
}

TEST_F(FileTest, ErrorsNameThePath) {
  const auto missing = dir_ / "missing";
  EXPECT_EQ(read_file(missing).status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(message(read_file(missing).status()).find(missing.string()), std::string::npos);
  EXPECT_EQ(MappedFile::open(missing).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(write_file_atomic(dir_ / "big", "12345").ok());
  EXPECT_EQ(read_file(dir_ / "big", 4).status().code(), absl::StatusCode::kResourceExhausted);
}

class BelowTest : public FileTest {
 protected:
  void SetUp() override {
    FileTest::SetUp();
    ASSERT_TRUE(write_file_atomic(root_ / "a" / "file", "inside").ok());
    ASSERT_TRUE(write_file_atomic(dir_ / "outside" / "file", "outside").ok());
    link("in", "a/file");
    link("in_absolute", root_ / "a" / "file");
    link("in_folder", root_ / "a");
    link("out", "../outside/file");
    link("out_absolute", dir_ / "outside" / "file");
    link("out_folder", dir_ / "outside");
    link("nowhere", "x");
    link("loop", "loop");
    ASSERT_EQ(::mkfifo((root_ / "fifo").c_str(), 0600), 0);
  }
  void link(const char* name, const std::filesystem::path& to) {
    std::filesystem::create_symlink(to, root_ / name);
  }
  std::string read(const std::filesystem::path& path) {
    auto file = OpenFile::open_below(root_, path);
    if (!file.ok()) return std::string(absl::StatusCodeToString(file.status().code()));
    return *read_file(*std::move(file), 100);
  }

  const std::filesystem::path root_ = dir_ / "root";
};

TEST_F(BelowTest, LinksThatStayInsideAreFollowed) {
  for (const char* name : {"a/file", "in", "in_absolute", "in_folder/file", "a/../a/file"})
    EXPECT_EQ(read(root_ / name), "inside") << name;
  EXPECT_EQ(read(root_ / "../root/a/file"), "inside");
  const ReadFolder folder(root_ / "in_folder", root_);
  EXPECT_TRUE(folder.has("file"));
  EXPECT_FALSE(folder.has("none"));
  EXPECT_TRUE(folder.open("file").ok());
}

TEST_F(BelowTest, NothingElseIsOpened) {
  for (const char* name :
       {"out", "out_absolute", "out_folder/file", "../outside/file", "a", "fifo", "loop", ".", ""})
    EXPECT_EQ(read(root_ / name), "INVALID_ARGUMENT") << name;
  EXPECT_EQ(read("/dev/zero"), "INVALID_ARGUMENT");
  EXPECT_EQ(read(root_ / "nowhere"), "NOT_FOUND");
  EXPECT_EQ(read(root_ / "x"), "NOT_FOUND");
  const ReadFolder folder(root_, root_);
  EXPECT_TRUE(folder.has("out"));
  EXPECT_FALSE(folder.open("out").ok());
  EXPECT_TRUE(ReadFolder(root_).open("out").ok()) << "without a root";
}

// A folder alternates with a link that leads outside; every file that was opened lies inside.
TEST_F(BelowTest, AChangeMeanwhileLeadsNowhere) {
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    const auto folder = root_ / "a", aside = root_ / "aside";
    while (!is_over) {
      std::filesystem::rename(folder, aside);
      std::filesystem::create_directory_symlink(dir_ / "outside", folder);
      std::filesystem::remove(folder);
      std::filesystem::rename(aside, folder);
    }
  });
  for (int i = 0; i < 3000; ++i) EXPECT_NE(read(root_ / "a" / "file"), "outside");
  is_over = true;
  other.join();
}

}  // namespace
}  // namespace nereid
