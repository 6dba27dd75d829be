// Prompts with pictures: ids of transformers' processors (tests/golden/picture_prompts.json).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/json_members.h"
#include "base/scratch_dir.h"
#include "base/testing/source_dir.h"
#include "text/testing/quickstart_tokenizer.h"
#include "vision/decode/test_pictures.h"
#include "vision/processor.h"
#include "vision/prompt/picture_marks.h"

namespace nereid::vision {
namespace {

constexpr int64_t kMaxPatches = 10000;

std::map<std::string, Image> pictures_by_name() {
  std::map<std::string, Image> out;
  for (testing_only::GoldenPicture& picture : testing_only::golden_pictures())
    out[picture.name] = std::move(picture.image);
  return out;
}

// A model's folder: two configurations and the quick-start tokenizer with the tokens `added`.
void write_model(const json::object& model, const std::filesystem::path& dir) {
  std::vector<std::string> added;
  for (const json::value& token : array_member(model, "added"))
    added.emplace_back(token.get_string());
  text::write_quickstart_tokenizer(dir, added);
  std::ofstream(dir / "config.json") << json::serialize(model.at("config"));
  std::ofstream(dir / "preprocessor_config.json") << json::serialize(model.at("preprocessor"));
}

TEST(PicturePrompts, IdsEqualThoseOfTransformers) {
  const json::value golden = *read_json_file(source_dir() + "/tests/golden/picture_prompts.json");
  const std::map<std::string, Image> pictures = pictures_by_name();
  size_t num_compared = 0;
  for (const auto& [name, value] : golden.get_object()) {
    const json::object& model = value.get_object();
    const ScratchDir dir = *ScratchDir::create();
    write_model(model, dir.path());
    const auto tokenizer = text::Tokenizer::load(dir.path());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const auto encoder = read_encoder_facts(dir.path(), kMaxPatches);
    ASSERT_TRUE(encoder.ok()) << encoder.status();
    const auto processor = read_processor(dir.path(), *encoder);
    ASSERT_TRUE(processor.ok()) << processor.status();
    const auto marks = find_marks(dir.path(), **tokenizer);
    ASSERT_TRUE(marks.ok()) << marks.status();
    for (const json::value& one : array_member(model, "cases")) {
      const json::object& c = one.get_object();
      SCOPED_TRACE(std::string(name) + ": " + text_member(c, "text"));
      std::vector<PictureTokens> tokens;
      size_t num_spans = 0;
      for (const json::value& picture : array_member(c, "pictures")) {
        const auto patches = preprocess(pictures.at(std::string(picture.get_string())), *processor,
                                        *encoder, {}, array_member(c, "pictures").size());
        ASSERT_TRUE(patches.ok()) << patches.status();
        tokens.push_back(tokens_of(*patches));
        num_spans += grids_of(*patches).size();
      }
      auto ids = (*tokenizer)
                     ->encode(with_shown_marks(text_member(c, "text"), *marks),
                              {.add_special_tokens = false});
      ASSERT_TRUE(ids.ok()) << ids.status();
      const auto spans = place_pictures(*marks, tokens, *ids);
      ASSERT_TRUE(spans.ok()) << spans.status();
      EXPECT_EQ(spans->size(), num_spans);
      std::vector<int32_t> wanted;
      for (const json::value& id : array_member(c, "ids"))
        wanted.push_back(static_cast<int32_t>(id.get_int64()));
      EXPECT_EQ(*ids, wanted);
      for (const TokenSpan& span : *spans)
        for (int32_t at = span[0]; at < span[0] + span[1]; ++at)
          EXPECT_EQ(ids->at(static_cast<size_t>(at)), marks->id);
      ++num_compared;
    }
  }
  EXPECT_GE(num_compared, 6u);
}

}  // namespace
}  // namespace nereid::vision
