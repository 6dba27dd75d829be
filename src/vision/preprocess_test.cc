// Patches of each processor, bit by bit those of transformers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <map>
#include <string>

#include "base/file.h"
#include "base/scratch_dir.h"
#include "base/testing/source_dir.h"
#include "vision/decode/test_pictures.h"
#include "vision/processor.h"

namespace nereid::vision {
namespace {

using ::testing::HasSubstr;
using testing_only::golden_pictures;
using testing_only::GoldenPicture;

StatusOr<ProcessorConfig> config_of(std::string_view text, const EncoderFacts& encoder) {
  const ScratchDir dir = *ScratchDir::create();
  EXPECT_TRUE(write_file_atomic(dir.path() / "preprocessor_config.json", text).ok());
  return read_processor(dir.path(), encoder);
}

struct Case {
  std::string config;
  EncoderFacts encoder;
  size_t num_pictures = 1;
};

// As tests/golden/pictures.py makes them.
std::map<std::string, Case> cases() {
  const EncoderFacts seven{3 * 7 * 7, 1, 10000}, eight{3 * 8 * 8, 1, 10000};
  const std::string clip = R"({"image_processor_type": "CLIPImageProcessor",
      "size": {"shortest_edge": 28}, )";
  const std::string usual = R"("crop_size": {"height": 28, "width": 28})";
  const std::string idefics = R"({"image_processor_type": "Idefics3ImageProcessor",
      "size": {"longest_edge": 88}, "max_image_size": {"longest_edge": 32})";
  const std::string mllama = R"({"image_processor_type": "MllamaImageProcessor",
      "size": {"height": 28, "width": 28})";
  const std::string one_vision = R"({"image_processor_type": "LlavaOnevisionImageProcessorFast",
      "size": {"height": 30, "width": 30}, "image_grid_pinpoints": [[30, 30], [30, 60], [30, 90],
      [60, 30], [60, 60], [60, 90], [90, 30], [90, 60], [90, 90]])";
  const std::string square = R"("size": {"height": 32, "width": 48}})";
  return {
      {"clip", {clip + usual + "}", seven}},
      {"clip_lanczos",
       {clip + R"("crop_size": {"height": 35, "width": 21}, "resample": 1})", seven}},
      {"clip_box", {clip + usual + R"(, "resample": 4})", seven}},
      {"clip_hamming", {clip + usual + R"(, "resample": 5, "do_normalize": false})", seven}},
      {"siglip", {R"({"image_processor_type": "SiglipImageProcessor", )" + square, eight}},
      {"gemma3", {R"({"image_processor_type": "Gemma3ImageProcessorFast", )" + square, eight}},
      {"qwen2_vl",
       {R"({"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 8, "min_pixels": 256,
            "max_pixels": 4096})",
        {2 * 3 * 8 * 8, 2, 10000}}},
      {"pixtral",
       {R"({"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 64},
            "patch_size": {"height": 16, "width": 16}})",
        {3 * 8 * 8, 2, 10000}}},
      {"tiles",
       {R"({"image_processor_type": "GotOcr2ImageProcessorFast", "max_patches": 6,
            "size": {"height": 32, "width": 32}})",
        eight}},
      {"qwen3_vl",
       {R"({"image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 16,
            "size": {"shortest_edge": 256, "longest_edge": 4096}, "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5]})",
        {2 * 3 * 16 * 16, 2, 10000}}},
      {"llava_next",
       {R"({"image_processor_type": "LlavaNextImageProcessor", "size": {"shortest_edge": 28},
            "crop_size": {"height": 28, "width": 28},
            "image_grid_pinpoints": [[28, 56], [56, 28], [56, 56], [84, 28], [28, 84]]})",
        seven}},
      {"llava_onevision", {one_vision + R"(, "image_mean": 0.5, "image_std": 0.5})", seven}},
      {"llava_onevision_several", {one_vision + R"(, "resample": 2})", seven, 2}},
      {"mllama", {mllama + "}", seven}},
      {"mllama_six", {mllama + R"(, "max_image_tiles": 6, "resample": 3})", seven}},
      {"idefics3", {idefics + "}", {3 * 8 * 8, 2, 16}}},
      {"idefics3_whole", {idefics + R"(, "do_image_splitting": false})", {3 * 8 * 8, 2, 16}}},
  };
}

TEST(Preprocess, HasTheValuesOfTransformers) {
  size_t num_compared = 0;
  for (const auto& [processor, made] : cases()) {
    const auto config = config_of(made.config, made.encoder);
    ASSERT_TRUE(config.ok()) << processor << ": " << config.status();
    for (const GoldenPicture& golden : golden_pictures()) {
      SCOPED_TRACE(processor + " " + golden.name);
      const json::object& wanted = object_member(golden.values, processor);
      if (wanted.empty()) continue;  // refused by transformers
      const auto patches = preprocess(golden.image, *config, made.encoder, {}, made.num_pictures);
      ASSERT_TRUE(patches.ok()) << patches.status();
      json::array grid;
      for (const int32_t side : patches->grid) grid.push_back(side);
      EXPECT_EQ(json::value(grid), wanted.at("grid"));
      EXPECT_EQ(patches->width, integer_member(wanted, "width"));
      EXPECT_EQ(patches->rows, patches->grid[0] * patches->grid[1] * patches->grid[2]);
      ASSERT_EQ(patches->values.size(),
                static_cast<size_t>(patches->rows) * static_cast<size_t>(patches->width));
      const auto crc = crc32(0, reinterpret_cast<const Bytef*>(patches->values.data()),
                             static_cast<uInt>(patches->values.size() * sizeof(float)));
      EXPECT_EQ(static_cast<int64_t>(crc), integer_member(wanted, "crc"));
      ++num_compared;
    }
  }
  EXPECT_GT(num_compared, 500u);
}

// As pattern() of tests/golden/pictures.py.
Image pattern(int32_t width, int32_t height, uint32_t seed) {
  Image out{width, height, {}};
  for (uint32_t y = 0; y < static_cast<uint32_t>(height); ++y)
    for (uint32_t x = 0; x < static_cast<uint32_t>(width); ++x)
      for (uint32_t c = 0; c < 3; ++c) {
        const uint32_t hashed =
            (x * 73856093u) ^ (y * 19349663u) ^ (c * 83492791u) ^ (seed * 7919u);
        const uint32_t noise = (hashed * 2654435761u) >> 27;
        out.rgb.push_back(static_cast<uint8_t>(x * 5 + y * 3 + c * 40 + noise));
      }
  return out;
}

TEST(Preprocess, HasTheValuesOfTransformersForOtherSizes) {
  const auto golden = read_json_file(source_dir() + "/tests/golden/picture_sizes.json");
  ASSERT_TRUE(golden.ok()) << golden.status();
  const std::map<std::string, Case> all = cases();
  std::map<std::string, ProcessorConfig> configs;
  for (const auto& [name, made] : all) {
    const auto config = config_of(made.config, made.encoder);
    ASSERT_TRUE(config.ok()) << name << ": " << config.status();
    configs[name] = *config;
  }
  size_t num_compared = 0;
  for (size_t i = 0; i < golden->get_array().size(); ++i) {
    const json::array& picture = golden->get_array()[i].get_array();
    const Image image = pattern(picture[0].to_number<int32_t>(), picture[1].to_number<int32_t>(),
                                static_cast<uint32_t>(i));
    EXPECT_EQ(picture[2].get_object().size(), all.size());
    for (const auto& [name, wanted] : picture[2].get_object()) {
      if (wanted.is_null()) continue;  // refused by transformers
      SCOPED_TRACE(fmt::format("{} picture {}", std::string_view(name), i));
      const Case& c = all.at(std::string(name));
      const auto patches =
          preprocess(image, configs.at(std::string(name)), c.encoder, {}, c.num_pictures);
      ASSERT_TRUE(patches.ok()) << patches.status();
      json::array got(patches->grid.begin(), patches->grid.end());
      const auto crc = crc32(0, reinterpret_cast<const Bytef*>(patches->values.data()),
                             static_cast<uInt>(patches->values.size() * sizeof(float)));
      got.emplace_back(patches->width), got.emplace_back(static_cast<int64_t>(crc));
      EXPECT_EQ(json::value(got), wanted);
      ++num_compared;
    }
  }
  EXPECT_GT(num_compared, 1700u);
}

TEST(Preprocess, NumberOfTokensFollowsTheMerge) {
  const Case qwen = cases().at("qwen2_vl");
  const auto config = config_of(qwen.config, qwen.encoder);
  ASSERT_TRUE(config.ok()) << config.status();
  const Image image{48, 32, std::vector<uint8_t>(48 * 32 * 3)};
  const auto patches = preprocess(image, *config, qwen.encoder);
  ASSERT_TRUE(patches.ok()) << patches.status();
  EXPECT_EQ(patches->rows, 24);
  EXPECT_EQ(patches->num_tokens, 6);
}

TEST(Preprocess, ThinPicturesAreRefusedWhereTheProcessorDoes) {
  const Case qwen = cases().at("qwen2_vl");
  const auto config = config_of(qwen.config, qwen.encoder);
  const Image image{1, 201, std::vector<uint8_t>(201 * 3)};
  EXPECT_THAT(message(preprocess(image, *config, qwen.encoder).status()),
              HasSubstr("the picture has 1 x 201 pixels"));
}

TEST(Preprocess, EncoderBoundsThePatches) {
  Case qwen = cases().at("qwen2_vl");
  qwen.encoder.max_patches = 16;
  const auto config = config_of(qwen.config, qwen.encoder);
  const Image image{64, 64, std::vector<uint8_t>(64 * 64 * 3)};
  const auto patches = preprocess(image, *config, qwen.encoder);
  ASSERT_TRUE(patches.ok()) << patches.status();
  EXPECT_EQ(patches->rows, 16);  // the picture is made smaller
  Case clip = cases().at("clip");
  clip.encoder.max_patches = 15;
  EXPECT_THAT(
      message(preprocess(image, *config_of(clip.config, clip.encoder), clip.encoder).status()),
      HasSubstr("takes 16 patches; the model takes 15"));
}

TEST(Preprocess, MemoryIsHeldFirst) {
  const Case clip = cases().at("clip");
  const auto config = config_of(clip.config, clip.encoder);
  // The resized picture would have 28 x 1835008 pixels; the part that is seen has 28 x 28.
  const Image image{1, 65536, std::vector<uint8_t>(65536 * 3)};
  size_t most = 0;
  const auto count = [&](size_t bytes) {
    most = std::max(most, bytes);
    return ok();
  };
  ASSERT_TRUE(preprocess(image, *config, clip.encoder, count).ok());
  EXPECT_GT(most, size_t{28} * 28 * 3);
  EXPECT_LT(most, size_t{10} << 20);
  const auto refuse = [](size_t) { return unavailable("full"); };
  EXPECT_EQ(preprocess(image, *config, clip.encoder, refuse).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(Preprocess, ConfigurationsThatCannotBeFollowedAreNamed) {
  const EncoderFacts encoder{3 * 8 * 8, 1, 100};
  const auto error = [&](std::string_view text) {
    return std::string(message(config_of(text, encoder).status()));
  };
  EXPECT_THAT(error("{}"), HasSubstr("no preprocessor_config.json of a picture processor"));
  EXPECT_THAT(error(R"({"image_processor_type": "FuyuImageProcessor"})"),
              HasSubstr("processor 'FuyuImageProcessor' is not supported"));
  EXPECT_THAT(error(R"({"image_processor_type": "CLIPImageProcessor", "resample": 9})"),
              HasSubstr("'resample' is not an integer in [1, 5]"));
  EXPECT_THAT(error(R"({"image_processor_type": "Gemma3ImageProcessor", "do_pan_and_scan": true})"),
              HasSubstr("do_pan_and_scan"));
  EXPECT_THAT(error(R"({"image_processor_type": "Idefics3ImageProcessor",
                "size": {"longest_edge": 4000}})"),
              HasSubstr("'size' has longest_edge 4000, more than 8 tiles of 364"));
  EXPECT_THAT(error(R"({"image_processor_type": "LlavaNextImageProcessor",
                "size": {"shortest_edge": 28}, "crop_size": 28, "image_grid_pinpoints": [[28, 40]]})"),
              HasSubstr("'image_grid_pinpoints' has 28 x 40; allowed are up to 64 squares of 28"));
  EXPECT_THAT(error(R"({"image_processor_type": "LlavaNextImageProcessor",
                "size": {"shortest_edge": 28}, "crop_size": 28, "image_grid_pinpoints": [7]})"),
              HasSubstr("'image_grid_pinpoints' is not a list of pairs of integers"));
  EXPECT_THAT(error(R"({"image_processor_type": "LlavaNextImageProcessor",
                "size": {"shortest_edge": 28}, "crop_size": 35})"),
              HasSubstr("'crop_size' is not the square of 'size'"));
  EXPECT_THAT(error(R"({"image_processor_type": "LlavaOnevisionImageProcessor", "crop_size": 28})"),
              HasSubstr("'crop_size' is not the square of 'size'"));
  EXPECT_THAT(error(R"({"image_processor_type": "SiglipImageProcessor", "image_std": [1, 0, 1]})"),
              HasSubstr("'image_std' has a number that is not above 0"));
  EXPECT_THAT(error(R"({"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 8})"),
              HasSubstr("do not fit the model's rows of 192 numbers"));
  EXPECT_THAT(error(R"({"image_processor_type": "Qwen2VLImageProcessor", "temporal_patch_size": 1,
                "patch_size": 8})"),
              HasSubstr("'merge_size' 2 is not the model's 1"));
}

}  // namespace
}  // namespace nereid::vision
