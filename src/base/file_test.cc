#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

#include "base/mapped_file.h"

namespace nereid {
namespace {

class FileTest : public testing::Test {
 protected:
  std::filesystem::path dir_ = std::filesystem::path(testing::TempDir()) / "nereid_file_test";
  void SetUp() override { std::filesystem::remove_all(dir_); }
  void TearDown() override { std::filesystem::remove_all(dir_); }
};

// Nobody writes into it: a reader that opened it as a file would wait for ever.
TEST_F(FileTest, OnlyRegularFilesAreRead) {
  std::filesystem::create_directories(dir_);
  const auto fifo = dir_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(message(read_file(fifo).status()), fifo.string() + ": is not a regular file");
  EXPECT_EQ(message(MappedFile::open(fifo).status()), fifo.string() + ": not a regular file");
  EXPECT_EQ(message(read_file("/dev/zero").status()), "/dev/zero: is not a regular file");
  EXPECT_EQ(message(read_file(dir_).status()), dir_.string() + ": is a directory");
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

TEST_F(FileTest, ErrorsNameThePath) {
  const auto missing = dir_ / "missing";
  EXPECT_EQ(read_file(missing).status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(message(read_file(missing).status()).find(missing.string()), std::string::npos);
  EXPECT_EQ(MappedFile::open(missing).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(write_file_atomic(dir_ / "big", "12345").ok());
  EXPECT_EQ(read_file(dir_ / "big", 4).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace nereid
