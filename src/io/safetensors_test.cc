#include "io/safetensors.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstring>

#include "base/file.h"
#include "base/rng.h"
#include "base/testing/source_dir.h"

namespace nereid::io {
namespace {

using testing::HasSubstr;

std::string file_with(std::string header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string out(reinterpret_cast<const char*>(&length), 8);
  return out + header + std::string(data_bytes, '\1');
}

std::span<const std::byte> bytes_of(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

std::string error_of(const std::string& file) {
  const auto tensors = parse_safetensors(bytes_of(file));
  return tensors.ok() ? "" : std::string(message(tensors.status()));
}

class Directory {
 public:
  Directory() {
    std::string name = testing::TempDir() + "/safetensors.XXXXXX";
    path = ::mkdtemp(name.data());
  }
  ~Directory() { std::filesystem::remove_all(path); }
  void write(std::string_view name, std::string_view bytes) const {
    ASSERT_TRUE(write_file_atomic(path / name, bytes).ok());
  }
  std::filesystem::path path;
};

TEST(Safetensors, ReadsTheQuickStartModel) {
  const auto file = TensorFile::open(source_dir() + "/models/quickstart/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors().size(), 56u);
  EXPECT_EQ(file->tensors().front().name, "model.embed_tokens.weight");
  EXPECT_EQ(file->tensors().front().shape_text(), "[4096, 256]");
  EXPECT_EQ(file->tensors().front().type, DType::kBF16);
}

TEST(Safetensors, WrittenFileReadsBack) {
  const std::string data = "abcdefgh";
  StoredTensor a{"a", "F32", DType::kF32, {1, 2}, bytes_of(data)};
  StoredTensor b{"b", "U8", DType::kU8, {3}, bytes_of(data).first(3)};
  const std::string file = serialize_safetensors(std::vector{a, b});
  const auto tensors = parse_safetensors(bytes_of(file));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[1].name, "b");
  EXPECT_EQ(std::memcmp((*tensors)[1].data.data(), "abc", 3), 0);
}

// Other programs' metadata has no rank.
TEST(Safetensors, AHeaderMaySayOfWhichRankItIs) {
  const auto rank_of = [](const std::string& metadata) {
    std::optional<int32_t> rank;
    const std::string file = file_with(R"({"__metadata__":)" + metadata + "}", 0);
    const auto tensors = parse_safetensors(bytes_of(file), &rank);
    return tensors.ok() ? fmt::format("{}", rank.value_or(-1))
                        : std::string(message(tensors.status()));
  };
  EXPECT_EQ(rank_of(R"({"nereid.rank":"3"})"), "3");
  EXPECT_EQ(rank_of(R"({"format":"pt","rank":"3"})"), "-1");
  EXPECT_EQ(rank_of("7"), "-1");
  for (const char* bad : {R"({"nereid.rank":"-1"})", R"({"nereid.rank":"1x"})",
                          R"({"nereid.rank":2})", R"({"nereid.rank":""})"})
    EXPECT_THAT(rank_of(bad), HasSubstr("__metadata__: nereid.rank is no rank"));
}

TEST(Safetensors, DamageIsNamed) {
  EXPECT_THAT(error_of("abc"), HasSubstr("too few"));
  EXPECT_THAT(error_of(std::string(8, '\xff')), HasSubstr("at most 104857600"));
  EXPECT_THAT(error_of(std::string("\x09\0\0\0\0\0\0\0{}", 10)), HasSubstr("does not fit"));
  EXPECT_THAT(error_of(file_with("{", 0)), HasSubstr("line 1"));
  EXPECT_THAT(error_of(file_with("[]", 0)), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of(file_with(R"({"w":3})", 0)), HasSubstr("tensor 'w'"));
  EXPECT_THAT(error_of(file_with(R"({"w":{"dtype":"X9","shape":[],"data_offsets":[0,0]}})", 0)),
              HasSubstr("dtype 'X9' is not known"));
  EXPECT_THAT(error_of(file_with(R"({"w":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})", 0)),
              HasSubstr("not a size"));
  EXPECT_THAT(
      error_of(file_with(
          R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0)),
      HasSubstr("too large"));
  EXPECT_THAT(error_of(file_with(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 3)),
              HasSubstr("ends at byte 4 of the data, the file has 3"));
  EXPECT_THAT(error_of(file_with(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[3,1]}})", 4)),
              HasSubstr("data_offsets"));
  EXPECT_THAT(error_of(file_with(R"({"w":{"dtype":"F16","shape":[4],"data_offsets":[0,4]}})", 4)),
              HasSubstr("needs 8 bytes"));
  EXPECT_THAT(error_of(file_with(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                                 R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                                 4)),
              HasSubstr("tensor 'b' overlaps tensor 'a'"));
  EXPECT_THAT(error_of(file_with(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}})", 4)),
              HasSubstr("1 bytes before tensor 'a'"));
  EXPECT_THAT(error_of(file_with(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 4)),
              HasSubstr("1 bytes at the end"));
}

TEST(Safetensors, RandomDamageNeverCrashes) {
  const std::string data(64, 'x');
  const std::string good = serialize_safetensors(
      std::vector{StoredTensor{"a", "F32", DType::kF32, {4, 2}, bytes_of(data).first(32)},
                  StoredTensor{"b", "BF16", DType::kBF16, {4}, bytes_of(data).first(8)}});
  ASSERT_EQ(error_of(good), "");
  for (uint64_t i = 0; i < 20000; ++i) {
    std::string bad = good;
    const auto r = philox(1, i);
    bad[r[0] % bad.size()] = static_cast<char>(r[1]);
    if (r[2] % 4 == 0) bad.resize(r[3] % bad.size());
    const auto tensors = parse_safetensors(bytes_of(bad));
    if (!tensors.ok()) continue;
    for (const StoredTensor& t : *tensors) {
      ASSERT_GE(t.data.data(), bytes_of(bad).data());
      ASSERT_LE(t.data.data() + t.data.size(), bytes_of(bad).data() + bad.size());
    }
  }
}

TEST(Checkpoint, ShardsEqualOneFile) {
  const std::string data = "abcdefgh";
  const StoredTensor a{"a", "F32", DType::kF32, {2}, bytes_of(data)};
  const StoredTensor b{"b", "U8", DType::kU8, {3}, bytes_of(data).first(3)};
  Directory dir;
  dir.write("one.safetensors", serialize_safetensors(std::vector{a}));
  dir.write("two.safetensors", serialize_safetensors(std::vector{b}));
  dir.write("model.safetensors.index.json",
            R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const auto checkpoint = Checkpoint::open(dir.path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  ASSERT_NE(checkpoint->find("b"), nullptr);
  EXPECT_EQ(checkpoint->find("b")->file->path().filename(), "two.safetensors");
  EXPECT_EQ(checkpoint->find("c"), nullptr);
}

TEST(Checkpoint, ErrorsNameFileAndTensor) {
  const std::string data = "abcdefgh";
  const std::string shard = serialize_safetensors(
      std::vector{StoredTensor{"a", "F32", DType::kF32, {2}, bytes_of(data)}});
  Directory dir;
  const auto error = [&] {
    const auto checkpoint = Checkpoint::open(dir.path);
    return checkpoint.ok() ? "" : std::string(message(checkpoint.status()));
  };
  EXPECT_THAT(error(), HasSubstr("none of model.safetensors, "));
  dir.write("one.safetensors", shard);
  const auto index = [&](std::string_view json) {
    dir.write("model.safetensors.index.json", json);
  };
  index(R"({"weight_map":{"a":"../one.safetensors"}})");
  EXPECT_THAT(error(), HasSubstr("tensor 'a' is not mapped to a file name"));
  index(R"({"weight_map":{"a":"one.safetensors","x":"one.safetensors"}})");
  EXPECT_THAT(error(), HasSubstr("one.safetensors: tensor 'x' is missing"));
  index(R"({"weight_map":{"a":"none.safetensors"}})");
  EXPECT_THAT(error(), HasSubstr("none.safetensors: No such file"));
  dir.write("two.safetensors", shard);
  index(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  EXPECT_THAT(error(), HasSubstr("two.safetensors: tensor 'a' is also in"));
  dir.write("model.safetensors", shard.substr(0, shard.size() - 1));
  EXPECT_THAT(error(), HasSubstr("model.safetensors: tensor 'a': ends at byte 8"));
}

}  // namespace
}  // namespace nereid::io
