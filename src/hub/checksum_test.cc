#include "hub/checksum.h"

#include <gtest/gtest.h>

namespace nereid::hub {
namespace {

std::string hash_of(ChecksumKind kind, std::string_view text) {
  auto hasher = Hasher::create(kind, static_cast<int64_t>(text.size()));
  EXPECT_TRUE(hasher.ok());
  hasher->update(text.substr(0, text.size() / 2));
  hasher->update(text.substr(text.size() / 2));
  return hasher->finish();
}

// `printf 'hello\n' | sha256sum`, `| git hash-object --stdin`.
TEST(Checksum, KnownValues) {
  EXPECT_EQ(hash_of(ChecksumKind::kSha256, "hello\n"),
            "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
  EXPECT_EQ(hash_of(ChecksumKind::kGitBlob, "hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_EQ(hash_of(ChecksumKind::kGitBlob, ""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
}

TEST(Checksum, EtagsAndListings) {
  const std::string sha(64, 'A'), git(40, 'b');
  EXPECT_EQ(parse_checksum("\"" + sha + "\""),
            (Checksum{ChecksumKind::kSha256, std::string(64, 'a')}));
  EXPECT_EQ(parse_checksum("sha256:" + sha)->kind, ChecksumKind::kSha256);
  EXPECT_EQ(parse_checksum("W/\"" + git + "\""), (Checksum{ChecksumKind::kGitBlob, git}));
  for (const std::string& text : {std::string(), std::string("\""), std::string(32, 'a'),
                                  std::string(64, 'g'), "\"" + sha, sha + "-1"})
    EXPECT_EQ(parse_checksum(text), std::nullopt) << text;
}

}  // namespace
}  // namespace nereid::hub
