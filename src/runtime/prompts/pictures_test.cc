// Encoder inputs and positions of pictures, without a model.
#include "runtime/prompts/pictures.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

namespace nereid::runtime {
namespace {

// Features of 2 x 2 tiles of one token each behind the whole picture; -1: a row's end.
TEST(PictureInputs, TilesLieRowByRow) {
  Picture picture;
  picture.frames = 5, picture.height = picture.width = 1, picture.num_tokens = 1 + 2 * 3;
  picture.tile_rows = picture.tile_columns = 2;
  picture.patches.resize(5);
  const PictureRules rules{
      .facts = {.patch_width = 1, .grid = 1, .max_frames = 5, .tiles_in_plane = true}};
  EXPECT_EQ(picture_inputs({picture}, rules, "")[0].result_rows,
            (std::vector<int32_t>{0, 1, 2, -1, 3, 4, -1}));
  picture.cut_rows = 1;
  EXPECT_EQ(picture_inputs({picture}, rules, "")[0].result_rows, std::vector<int32_t>{0});
  picture.cut_rows = 0, picture.cut_columns = 1;
  EXPECT_EQ(picture_inputs({picture}, rules, "")[0].result_rows, (std::vector<int32_t>{0, -1, -1}));
}

// Four tiles of 2 x 2 features become as many as one tile has: means of four neighbours.
TEST(PictureInputs, PlanesOfManyTilesAreBlended) {
  Picture picture;
  picture.frames = 5, picture.height = picture.width = 2;
  picture.tile_rows = picture.tile_columns = 2;
  picture.patches.resize(20);
  const PictureRules rules{.facts = {.patch_width = 1,
                                     .grid = 2,
                                     .max_frames = 5,
                                     .in_raster = true,
                                     .tiles_in_plane = true,
                                     .blended_tiles = 1}};
  const auto tokens_of = [](const EncoderRows& got, size_t at) {
    return std::vector<int32_t>(got.blends[at].tokens, got.blends[at].tokens + 4);
  };
  EncoderRows got = picture_inputs({picture}, rules, "")[0];
  EXPECT_EQ(got.result_rows, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, -1, 6, 7, -1}));
  EXPECT_EQ(got.num_results, 8);
  EXPECT_EQ(got.blends[3].tokens[0], 3);
  EXPECT_EQ(got.blends[3].weights[0], 1);
  for (int32_t tile = 0; tile < 4; ++tile) {
    const int32_t first = 4 * (1 + tile);
    EXPECT_EQ(tokens_of(got, static_cast<size_t>(4 + tile)),
              (std::vector<int32_t>{first, first + 1, first + 2, first + 3}));
    for (const float weight : got.blends[static_cast<size_t>(4 + tile)].weights)
      EXPECT_EQ(weight, 0.25f);
  }
  picture.cut_rows = 1;
  got = picture_inputs({picture}, rules, "")[0];
  EXPECT_EQ(got.result_rows, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, -1}));
  EXPECT_EQ(tokens_of(got, 4), (std::vector<int32_t>{6, 7, 12, 13}));
  picture.frames = 1, picture.tile_rows = picture.tile_columns = picture.cut_rows = 0;
  EXPECT_EQ(picture_inputs({picture}, rules, "")[0].result_rows,
            (std::vector<int32_t>{0, 1, 2, 3, -1}));
  picture.frames = 5;  // a video
  got = picture_inputs({picture}, rules, "")[0];
  EXPECT_EQ(got.result_rows, (std::vector<int32_t>{0, 1, 2, 3, 4, -1}));
  EXPECT_EQ(tokens_of(got, 2), (std::vector<int32_t>{8, 9, 10, 11}));
  EXPECT_EQ(got.blends[2].weights[3], 0.25f);
}

// Rows of 2 of 3 tiles, the missing one and the padding of all; the fifth arrangement.
TEST(PictureInputs, MissingTilesAndPaddingComeLast) {
  Picture picture;
  picture.frames = 2, picture.height = picture.width = 1, picture.num_tokens = 1;
  picture.tile_rows = 2, picture.tile_columns = 1, picture.first_token = 3;
  picture.patches = {7, 8};
  const PictureRules rules{.facts = {.patch_width = 1,
                                     .class_tokens = 1,
                                     .grid = 1,
                                     .max_frames = 3,
                                     .in_cross = true,
                                     .frame_padding = 2}};
  const EncoderRows got = picture_inputs({picture}, rules, "")[0];
  EXPECT_EQ(got.rows, (std::vector<uint16_t>{0, 7, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(got.num_results, 4);
  EXPECT_EQ(got.num_padding, 8);
  // Arrangements: 1 x 1, 1 x 2, 1 x 3, 2 x 1, 3 x 1, and one of no picture in front.
  EXPECT_EQ(got.components, (std::vector<int32_t>{12, 0, 18, 12, 1, 12, 13, 0, 18, 13, 1, 13,
                                                  14, 0, 18, 14, 1, 14, 12, 2, 18, 12, 2, 18,
                                                  13, 2, 18, 13, 2, 18, 14, 2, 18, 14, 2, 18}));
}

TEST(PictureInputs, TokensReadTheLastGroup) {
  std::vector<Picture> pictures(4);
  const int32_t places[] = {2, 5, 6, 9};
  for (size_t i = 0; i < 4; ++i) {
    pictures[i].height = pictures[i].width = pictures[i].num_tokens = 1;
    pictures[i].tile_rows = pictures[i].tile_columns = 1;
    pictures[i].first_token = places[i];
    pictures[i].patches = {1};
  }
  const PictureRules rules{.facts = {.patch_width = 1, .grid = 1, .in_cross = true}};
  std::vector<int32_t> ends;
  for (const EncoderRows& input : picture_inputs(pictures, rules, ""))
    ends.push_back(input.seen_end);
  EXPECT_EQ(ends, (std::vector<int32_t>{5, 9, 9, sched::EncoderSpec::kAllTokens}));
}

// Text advances all components; a picture of 2 x 3 tokens takes three positions.
TEST(PromptPositions, PicturesArePlacedInThePlane) {
  Picture picture;
  picture.first_token = 2, picture.num_tokens = 6, picture.height = 4, picture.width = 6;
  const PromptPositions got = prompt_positions(std::span(&picture, 1), 10, {.merge = 2});
  const std::vector<int32_t> expected = {0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 2, 2, 4,
                                         2, 3, 2, 2, 3, 3, 2, 3, 4, 5, 5, 5, 6, 6, 6};
  EXPECT_EQ(got.components, expected);
  EXPECT_EQ(got.offset, 7 - 10);
}

}  // namespace
}  // namespace nereid::runtime
