#include "base/gguf.h"

#include <gmock/gmock.h>

#include "base/test_gguf.h"

namespace nereid {
namespace {

using namespace testing_only;
using testing::ElementsAre;
using testing::HasSubstr;

StatusOr<Gguf> parse(const std::string& file) { return parse_gguf(std::as_bytes(std::span(file))); }
std::string gguf_error(const std::string& file) {
  const auto gguf = parse(file);
  return gguf.ok() ? "" : std::string(message(gguf.status()));
}
std::string header(uint64_t tensors, uint64_t keys) {
  return "GGUF" + gguf_number(3, 4) + gguf_number(tensors, 8) + gguf_number(keys, 8);
}

TEST(Gguf, MetadataAndTensors) {
  const std::string file =
      gguf_file({{"general.architecture", "llama"},
                 {"n", 7u},
                 {"x", 0.5},
                 {"yes", true},
                 {"list", {"a", "b"}},
                 {"scores", {-1.0, 2.0}}},
                {{"w", 0, {2, 3}, std::string(24, 'x')}, {"v", 30, {4}, std::string(8, 'y')}});
  const auto gguf = parse(file);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  EXPECT_EQ(gguf->metadata.at("general.architecture"), "llama");
  EXPECT_EQ(gguf->metadata.at("n"), 7);
  EXPECT_EQ(gguf->metadata.at("x"), 0.5);
  EXPECT_EQ(gguf->metadata.at("list").at(1), "b");
  EXPECT_EQ(gguf->metadata.at("scores").at(0), -1.0);
  ASSERT_EQ(gguf->tensors.size(), 2);
  EXPECT_THAT(gguf->tensors[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(gguf->tensors[1].offset, 32);
  EXPECT_EQ(file.substr(gguf->data_begin + 32, 8), std::string(8, 'y'));
}

TEST(Gguf, EndIdsOfTextsAndTurns) {
  json::object metadata = {{"tokenizer.ggml.tokens", {"a", "<|im_end|>", "<|eot_id|>", "</s>"}},
                           {"tokenizer.ggml.token_type", {1, 1, 3, 3}},
                           {"tokenizer.ggml.eos_token_id", 3}};
  EXPECT_THAT(gguf_end_ids(metadata), ElementsAre(3, 2)) << "the control token of that text";
  metadata["tokenizer.ggml.eot_token_id"] = 1;
  EXPECT_THAT(gguf_end_ids(metadata), ElementsAre(3, 1));
  metadata["tokenizer.ggml.eom_token_id"] = 0;
  EXPECT_THAT(gguf_end_ids(metadata), ElementsAre(3, 1, 0));
  metadata["tokenizer.ggml.eom_token_id"] = 4;
  metadata["tokenizer.ggml.eot_token_id"] = -1;
  EXPECT_THAT(gguf_end_ids(metadata), ElementsAre(3, 2));
  EXPECT_THAT(gguf_end_ids({{"tokenizer.ggml.tokens", 5}, {"tokenizer.ggml.eos_token_id", "x"}}),
              testing::IsEmpty());
}

TEST(Gguf, HostileFilesAreRefused) {
  EXPECT_THAT(gguf_error(""), HasSubstr("is not a GGUF file"));
  EXPECT_THAT(gguf_error("GGUF" + gguf_number(1, 4) + std::string(16, '\0')),
              HasSubstr("version 1 is not one of 2, 3"));
  EXPECT_THAT(gguf_error(header(1ull << 60, 0)), HasSubstr("at most 65536 and 1000000"));
  EXPECT_THAT(gguf_error(header(0, 1ull << 60)), HasSubstr("at most 65536 and 1000000"));
  EXPECT_THAT(gguf_error(header(0, 1)), HasSubstr("a key: the file ends within it"));
  EXPECT_THAT(gguf_error(header(0, 1) + gguf_number(~0ull, 8)), HasSubstr("ends within"));
  const std::string key = header(0, 1) + gguf_text("k");
  EXPECT_THAT(gguf_error(key + gguf_number(99, 4)), HasSubstr("key 'k': type 99 is not known"));
  EXPECT_THAT(gguf_error(key + gguf_number(8, 4) + gguf_number(1ull << 40, 8)),
              HasSubstr("key 'k': the file ends within it"));
  const std::string array = key + gguf_number(9, 4);
  EXPECT_THAT(gguf_error(array + gguf_number(4, 4) + gguf_number(1ull << 62, 8)),
              HasSubstr("key 'k': array of 4611686018427387904 items does not fit"));
  EXPECT_THAT(gguf_error(array + gguf_number(9, 4) + gguf_number(1, 8)),
              HasSubstr("array of type 9 is not known"));
  EXPECT_THAT(gguf_error(array + gguf_number(0, 4) + gguf_number(9'000'000, 8) +
                         std::string(9'000'000, 'x')),
              HasSubstr("at most 8000000"));
  const std::string twice = gguf_text("k") + gguf_number(7, 4) + gguf_number(1, 1);
  EXPECT_THAT(gguf_error(header(0, 2) + twice + twice), HasSubstr("key 'k': is there twice"));
  EXPECT_THAT(gguf_error(gguf_file({{"general.alignment", 0u}}, {})),
              HasSubstr("key 'general.alignment': 0 is not in [1"));
  const std::string tensor = header(1, 0) + gguf_text("w");
  EXPECT_THAT(gguf_error(tensor + gguf_number(99, 4)), HasSubstr("'w': 99 dimensions"));
  EXPECT_THAT(gguf_error(tensor + gguf_number(1, 4) + gguf_number(~0ull, 8)),
              HasSubstr("'w': a size is out of range"));
  EXPECT_THAT(gguf_error(tensor + gguf_number(1, 4)), HasSubstr("'w': the file ends within"));
  EXPECT_THAT(gguf_error(gguf_file({}, {{"w", 0, {1}, "abcd"}, {"w", 0, {1}, "abcd"}})),
              HasSubstr("tensor 'w': is there twice"));
}

}  // namespace
}  // namespace nereid
