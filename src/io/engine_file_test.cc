#include "io/engine_file.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/file.h"
#include "base/rng.h"
#include "base/round_up.h"
#include "io/engine_format.h"
#include "io/engine_writer.h"
#include "io/test_plan.h"

namespace nereid::io {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

class EngineFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/engine.XXXXXX";
    dir_ = ::mkdtemp(name.data());
    path_ = dir_ / "sub" / "a.engine";
    for (size_t i = 0; i < blob_.size(); ++i) blob_[i] = static_cast<std::byte>(i * 7);
    ASSERT_TRUE(write().ok());
    bytes_ = read_file(path_).value();
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // Appends the weights in pieces of 100 bytes, which do not divide their sizes.
  Status write() {
    ASSIGN_OR_RETURN(EngineWriter writer, EngineWriter::create(path_, plan_, "key"));
    for (const PlanWeight& w : plan_.weights)
      for (const Plane& p : w.planes)
        for (uint64_t at = 0; at < p.shape.bytes; at += 100)
          RETURN_IF_ERROR(writer.append(std::span(blob_).subspan(
              p.offset + at, std::min<uint64_t>(100, p.shape.bytes - at))));
    return writer.finish();
  }
  std::string error_with(const std::string& bytes, Verify verify = Verify::kAuto) {
    EXPECT_TRUE(write_file_atomic(path_, bytes).ok());
    const auto file = EngineFile::open(path_, verify);
    if (file.ok()) return "";
    EXPECT_EQ(file.status().code(), absl::StatusCode::kDataLoss);
    return std::string(message(file.status()));
  }
  // The file with an edited header.
  std::string with_header(const std::function<void(std::string&)>& edit) const {
    EnginePrefix prefix;
    std::memcpy(&prefix, bytes_.data(), sizeof prefix);
    std::string header = bytes_.substr(sizeof prefix, prefix.header_bytes);
    const std::string blob = bytes_.substr(prefix.blob_offset);
    edit(header);
    prefix.header_bytes = header.size();
    prefix.header_checksum = hash64(header);
    prefix.blob_offset = round_up(sizeof prefix + header.size(), kBlobAlignment);
    prefix.checksum = prefix.compute_checksum();
    std::string out(reinterpret_cast<const char*>(&prefix), sizeof prefix);
    out += header;
    out.resize(prefix.blob_offset);
    return out + blob;
  }
  size_t num_files() const {
    return std::distance(std::filesystem::directory_iterator(dir_ / "sub"), {});
  }

  // The last weight has three planes.
  static Plan plan() {
    Plan plan = test_plan();
    plan.weights[2].format = kernels::kInt8PerRow;
    plan.weights[2].format.zeros = true;
    place_weights(plan);
    return plan;
  }
  Plan plan_ = plan();
  std::vector<std::byte> blob_ = std::vector<std::byte>(plan_.blob_bytes);
  std::filesystem::path dir_, path_;
  std::string bytes_;
};

TEST_F(EngineFileTest, WrittenFileReadsBack) {
  const auto file = EngineFile::open(path_, Verify::kFull);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->build_key(), "key");
  EXPECT_EQ(file->plan().calls.size(), plan_.calls.size());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file->blob().data()) % 4096, 0u);
  for (const PlanWeight& w : file->plan().weights)
    for (const Plane& p : w.planes) {
      const auto bytes = file->bytes(p);
      EXPECT_TRUE(
          std::equal(bytes.begin(), bytes.end(), blob_.begin() + static_cast<ptrdiff_t>(p.offset)));
    }
  EXPECT_EQ(num_files(), 1u);
}

TEST_F(EngineFileTest, UnfinishedWriterLeavesNothingBehind) {
  {
    auto writer = EngineWriter::create(path_, plan_, "other");
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->append(std::span(blob_).first(10)).ok());
    EXPECT_THAT(std::string(message(writer->finish())), HasSubstr("weight 'embed' is incomplete"));
    EXPECT_FALSE(writer->append(blob_).ok());
  }
  EXPECT_EQ(num_files(), 1u);
  EXPECT_TRUE(EngineFile::open(path_).ok());
}

TEST_F(EngineFileTest, DamageIsNamed) {
  EXPECT_EQ(error_with(bytes_), "");
  EXPECT_THAT(error_with(""), HasSubstr("too few"));
  EXPECT_THAT(error_with("#!/bin/sh\n" + bytes_), HasSubstr("not an engine file"));
  EXPECT_THAT(error_with(bytes_.substr(0, bytes_.size() - 1)), HasSubstr("are expected"));
  std::string bad = bytes_;
  bad[8] ^= 1;
  EXPECT_THAT(error_with(bad), HasSubstr("prefix is damaged"));
  bad = bytes_;
  bad[80] ^= 1;
  EXPECT_THAT(error_with(bad), HasSubstr("header is damaged"));
  bad = bytes_;
  bad.back() ^= 1;
  EXPECT_THAT(error_with(bad), HasSubstr("a.engine: weight 'qkv' is damaged"));
  EXPECT_EQ(error_with(bad, Verify::kHeader), "");
}

// Every flipped bit is found, except in padding, which is not read.
TEST_F(EngineFileTest, EveryBitFlipIsFound) {
  const auto good = parse_engine(std::as_bytes(std::span(bytes_)));
  ASSERT_TRUE(good.ok());
  const size_t blob_offset = bytes_.size() - good->blob.size();
  const size_t header_end = bytes_.find_last_of('}', blob_offset) + 1;
  for (uint64_t i = 0; i < 300; ++i) {
    const auto r = philox(2, i);
    const size_t at = i % 2 ? r[0] % header_end : blob_offset + r[0] % good->blob.size();
    std::string bad = bytes_;
    bad[at] ^= static_cast<char>(1 << (r[1] % 8));
    EXPECT_NE(error_with(bad), "") << "byte " << at;
  }
}

TEST_F(EngineFileTest, AFileWithoutWeightsSaysWhereTheyAre) {
  ASSERT_TRUE(EngineWriter::write_plan(path_, plan_, "key", "/some/checkpoint").ok());
  const auto file = EngineFile::open(path_, Verify::kPlan);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->checkpoint(), "/some/checkpoint");
  EXPECT_EQ(file->plan().blob_bytes, plan_.blob_bytes);
  EXPECT_TRUE(file->blob().empty());
  for (const Verify verify : {Verify::kHeader, Verify::kAuto, Verify::kFull}) {
    const auto refused = EngineFile::open(path_, verify);
    EXPECT_THAT(std::string(message(refused.status())), HasSubstr("has no weights"));
  }
  const std::string bytes = read_file(path_).value();
  EXPECT_NE(error_with(bytes + "x", Verify::kPlan), "");
  EXPECT_NE(error_with(bytes.substr(0, bytes.size() - 1), Verify::kPlan), "");
}

// The program version identifies the writer only.
TEST_F(EngineFileTest, AnotherReleaseReadsIt) {
  const std::string own = NEREID_VERSION;
  std::string other = own;
  other.back() = other.back() == '9' ? '8' : '9';
  const auto written_by = [&](const std::string& from, const std::string& to) {
    return with_header(
        [&](std::string& header) { header.replace(header.find(from), from.size(), to); });
  };
  EXPECT_EQ(error_with(written_by('"' + own + '"', '"' + other + '"')), "");
  EXPECT_EQ(EngineFile::open(path_)->writer(), other);
  EXPECT_EQ(error_with(written_by("\"nereid_version\":\"" + own + "\",", "")), "");
  EXPECT_EQ(EngineFile::open(path_)->writer(), "");
  EXPECT_THAT(error_with(written_by('"' + own + "\",", '"' + other + "\",\"twist\":1,")),
              HasSubstr("header: field 'twist' is not known (written by nereid " + other +
                        ", this is " + own + ": build the engine again from its checkpoint)"));
  EXPECT_THAT(error_with(written_by(own + "\",", own + "\",\"twist\":1,")),
              EndsWith("header: field 'twist' is not known"));
}

TEST_F(EngineFileTest, AnotherFormatIsRefusedWithWhatToDo) {
  for (const auto& [version, who] :
       {std::pair(kEngineFormatVersion + 1, "a newer"), {kEngineFormatVersion - 1, "an older"}}) {
    std::string bytes = bytes_;
    EnginePrefix prefix;
    std::memcpy(&prefix, bytes.data(), sizeof prefix);
    prefix.format_version = version;
    prefix.checksum = prefix.compute_checksum();
    std::memcpy(bytes.data(), &prefix, sizeof prefix);
    EXPECT_THAT(error_with(bytes),
                EndsWith(fmt::format("format version {} of {} nereid, this is {} and reads version "
                                     "{}: build the engine again from its checkpoint, or use the "
                                     "nereid that wrote it",
                                     version, who, NEREID_VERSION, kEngineFormatVersion)));
  }
}

TEST_F(EngineFileTest, TruncationNeverCrashes) {
  for (uint64_t i = 0; i < 500; ++i) {
    const std::string bad = bytes_.substr(0, philox(3, i)[0] % bytes_.size());
    EXPECT_FALSE(parse_engine(std::as_bytes(std::span(bad))).ok());
  }
}

}  // namespace
}  // namespace nereid::io
