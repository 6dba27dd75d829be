#include "cli/commands/doctor.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/file.h"
#include "base/scratch_dir.h"

namespace nereid::cli {
namespace {

TEST(Doctor, CacheFolderMustBeWritable) {
  const ScratchDir scratch = *ScratchDir::create();
  const std::filesystem::path missing = scratch.path() / "a" / "b";
  EXPECT_NE(check_cache(missing).kind, Finding::kPrevents);
  EXPECT_FALSE(std::filesystem::exists(missing));  // a look writes nothing

  const std::filesystem::path file = scratch.path() / "engines" / "file";
  ASSERT_TRUE(write_file_atomic(file, std::string(3 << 20, 'x')).ok());
  ASSERT_TRUE(write_file_atomic(scratch.path() / "models" / "m", std::string(2 << 20, 'x')).ok());
  EXPECT_NE(check_cache(scratch.path()).text.find(": 3 MiB of engines, 2 MiB of pulled models"),
            std::string::npos);
  const Finding in_file = check_cache(file / "cache");
  EXPECT_EQ(in_file.kind, Finding::kPrevents);
  EXPECT_NE(in_file.text.find("--cache-dir"), std::string::npos);
}

TEST(Doctor, HugePagesAreReadFromTheKernelsFile) {
  EXPECT_EQ(check_huge_pages("always [madvise] never\n").kind, Finding::kOk);
  EXPECT_EQ(check_huge_pages("[always] madvise never\n").kind, Finding::kOk);
  EXPECT_EQ(check_huge_pages("always madvise [never]\n").kind, Finding::kNote);
  EXPECT_EQ(check_huge_pages("").kind, Finding::kNote);
}

TEST(Doctor, PortInUsePreventsServing) {
  using boost::asio::ip::tcp;
  boost::asio::io_context io;
  const tcp::endpoint any_free(boost::asio::ip::make_address_v4("127.0.0.1"), 0);
  tcp::acceptor taken(io, any_free);
  const int port = taken.local_endpoint().port();
  const Finding finding = check_default_port("--http-port", port);
  EXPECT_EQ(finding.kind, Finding::kPrevents);
  EXPECT_NE(finding.text.find("already in use"), std::string::npos) << finding.text;
  taken.close();
  EXPECT_EQ(check_default_port("--http-port", port).kind, Finding::kOk);
}

TEST(Doctor, EveryFindingHasSubjectAndText) {
  for (const Finding& finding : all_findings()) {
    EXPECT_FALSE(finding.subject.empty());
    EXPECT_FALSE(finding.text.empty()) << finding.subject;
  }
}

}  // namespace
}  // namespace nereid::cli
