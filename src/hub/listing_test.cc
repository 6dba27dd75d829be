#include "hub/listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nereid::hub {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kListed(40, 'c'), kLfs(64, 'a'), kGit(40, 'b');

std::string with_siblings(const std::string& siblings) {
  return fmt::format(R"({{"id": "a/b", "sha": "{}", "siblings": [{}]}})", kListed, siblings);
}

Listing of_names(const std::vector<std::string>& names) {
  Listing out{kListed, {}};
  for (const std::string& name : names) out.files.push_back({name, 1, {}});
  return out;
}

std::vector<std::string> names_of(const StatusOr<std::vector<RemoteFile>>& files) {
  std::vector<std::string> out;
  if (!files.ok()) return {std::string(message(files.status()))};
  for (const RemoteFile& file : *files) out.push_back(file.name);
  return out;
}

std::string error_of(const std::string& text) {
  const auto listing = parse_listing(text);
  return listing.ok() ? "" : std::string(message(listing.status()));
}

TEST(Listing, SizesAndChecksums) {
  const auto listing = parse_listing(with_siblings(fmt::format(
      R"({{"rfilename": "config.json", "size": 12, "blobId": "{}"}},
         {{"rfilename": "model.safetensors", "size": 134, "blobId": "{}",
           "lfs": {{"sha256": "{}", "size": 5000000000, "pointerSize": 134}}}},
         {{"rfilename": "plain.json"}})",
      kGit, kGit, kLfs)));
  ASSERT_TRUE(listing.ok()) << listing.status();
  EXPECT_EQ(listing->commit, kListed);
  ASSERT_EQ(listing->files.size(), 3U);
  EXPECT_EQ(listing->files[0].size, 12);
  EXPECT_EQ(listing->files[0].checksum, (Checksum{ChecksumKind::kGitBlob, kGit}));
  EXPECT_EQ(listing->files[1].size, 5'000'000'000);
  EXPECT_EQ(listing->files[1].checksum, (Checksum{ChecksumKind::kSha256, kLfs}));
  EXPECT_FALSE(listing->files[2].size || listing->files[2].checksum);
}

TEST(Listing, HostileAnswersAreRefused) {
  EXPECT_THAT(error_of("[]"), HasSubstr("'siblings'"));
  EXPECT_THAT(error_of(R"({"sha": "main", "siblings": []})"), HasSubstr("'main' is no commit"));
  EXPECT_THAT(error_of(with_siblings("1")), HasSubstr("a sibling is no object"));
  EXPECT_THAT(error_of(with_siblings("{}")), HasSubstr("file name ''"));
  EXPECT_THAT(error_of(with_siblings(R"({"rfilename": "../../.ssh/x.json"})")),
              HasSubstr("'../../.ssh/x.json' leads out of its folder; refused"));
  EXPECT_THAT(error_of(with_siblings(R"({"rfilename": "a.json"}, {"rfilename": "a.json"})")),
              HasSubstr("'a.json' is listed twice"));
  EXPECT_THAT(error_of(with_siblings(R"({"rfilename": "a.json", "size": -1})")),
              HasSubstr("size -1"));
  EXPECT_THAT(error_of(with_siblings(R"({"rfilename": "a.json", "size": 99999999999})")),
              HasSubstr("size 99999999999"));
  EXPECT_EQ(error_of(with_siblings(R"({"rfilename": "a.bin", "size": 99999999999999})")), "");
  std::string many;
  for (size_t i = 0; i <= kMaxListedFiles; ++i)
    many += fmt::format("{}{{\"rfilename\": \"{}\"}}", i > 0 ? "," : "", i);
  EXPECT_THAT(error_of(with_siblings(many)), HasSubstr("100001 files; allowed are 100000"));
}

TEST(Listing, TextsAndWeightsOfACheckpoint) {
  const Listing listing =
      of_names({"README.md", "config.json", "tokenizer.json", "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors", "consolidated.safetensors", "pytorch_model.bin",
                "onnx/model.safetensors", "modeling_x.py", "1_Pooling/config.json"});
  EXPECT_THAT(names_of(first_files(listing, {"a", "b"})),
              ElementsAre("config.json", "tokenizer.json", "1_Pooling/config.json"));
  EXPECT_THAT(names_of(weight_files(listing, "")),
              ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"));
  EXPECT_THAT(names_of(weight_files(of_names({"adapter_model.safetensors"}), "")),
              ElementsAre("adapter_model.safetensors"));
  EXPECT_THAT(
      names_of(weight_files(listing, R"({"weight_map": {"x": "consolidated.safetensors"}})")),
      ElementsAre("consolidated.safetensors"));
}

TEST(Listing, DamagedIndexIsRefused) {
  const Listing listing = of_names({"model.safetensors", "x.bin"});
  const auto error = [&](std::string_view index) {
    return std::string(message(weight_files(listing, index).status()));
  };
  EXPECT_THAT(error("{"), HasSubstr("line 1"));
  EXPECT_THAT(error("{}"), HasSubstr("'weight_map'"));
  EXPECT_THAT(error(R"({"weight_map": {"x": 1}})"), HasSubstr("tensor 'x'"));
  EXPECT_THAT(error(R"({"weight_map": {"x": "../y.safetensors"}})"),
              HasSubstr("has no file '../y.safetensors'"));
  EXPECT_THAT(error(R"({"weight_map": {"x": "x.bin"}})"), HasSubstr("names no safetensors"));
  EXPECT_THAT(error(R"({"weight_map": {}})"), HasSubstr("names no safetensors"));
}

TEST(Listing, ModelsWithoutSafetensorsSayWhatThereIs) {
  const auto error = [](const std::vector<std::string>& names, const std::string& file = "") {
    return names_of(first_files(of_names(names), {"a", "b", "main", file})).at(0);
  };
  EXPECT_THAT(error({"config.json", "pytorch_model.bin"}),
              HasSubstr("as pickles alone (pytorch_model.bin)"));
  EXPECT_THAT(error({"x-Q4_K_M.gguf", "x-Q8_0.gguf"}),
              HasSubstr("behind ':': x-Q4_K_M.gguf, x-Q8_0.gguf"));
  EXPECT_THAT(error({"config.json"}), HasSubstr("no weights"));
  EXPECT_THAT(error({"x-Q4_K_M.gguf"}, "x-q4_k_m.gguf"),
              HasSubstr("Did you mean 'x-Q4_K_M.gguf'?"));
  EXPECT_THAT(error({"config.json"}, "x.gguf"), HasSubstr("no .gguf files"));
}

TEST(Listing, PartsOfAGgufFile) {
  const Listing listing = of_names({"x-00001-of-00002.gguf", "x-00002-of-00002.gguf", "y.gguf",
                                    "z-00001-of-00003.gguf", "z-00003-of-00003.gguf"});
  const auto names = [&](const std::string& file) {
    return names_of(first_files(listing, {"a", "b", "main", file}));
  };
  EXPECT_THAT(names("x-00001-of-00002.gguf"),
              ElementsAre("x-00001-of-00002.gguf", "x-00002-of-00002.gguf"));
  EXPECT_THAT(names("y.gguf"), ElementsAre("y.gguf"));
  EXPECT_THAT(names("z-00001-of-00003.gguf").at(0), HasSubstr("2 of the 3 parts"));
  EXPECT_EQ(parts_of("x-00003-of-00002.gguf"), std::nullopt);
  EXPECT_EQ(parts_of("x-0001a-of-00002.gguf"), std::nullopt);
  EXPECT_EQ(parts_of("-00001-of-00002.gguf"), std::nullopt);
}

}  // namespace
}  // namespace nereid::hub
