#include "backend/whisper/speech_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/file.h"
#include "base/scratch_dir.h"

namespace nereid::backend {
namespace {

using ::testing::HasSubstr;

std::vector<float> tone(size_t size) {
  std::vector<float> samples(size);
  for (size_t i = 0; i < size; ++i) samples[i] = 0.5f * std::sin(0.2f * static_cast<float>(i));
  return samples;
}

// Features of a sound equal those of the same sound with mirrored samples written at both ends.
TEST(LogMelFeatures, TheEndIsMirrored) {
  const auto mel = speech::LogMel::create(80).value();
  const std::vector<float> sound = tone(1600);
  const std::vector<float> got = log_mel_features(mel, sound, 0).value();
  ASSERT_EQ(got.size(), 10u * 80);
  std::vector<float> longer = sound;
  for (size_t i = 1; i <= 200; ++i) longer.push_back(sound[1599 - i]);
  std::vector<float> energies(800);
  mel.energies(longer, 0, 10, energies);
  const float largest = *std::ranges::max_element(energies);
  for (size_t i = 0; i < energies.size(); ++i)
    ASSERT_FLOAT_EQ(got[i], (std::max(energies[i], largest - 8) + 4) / 4) << i;
  std::vector<float> plain(800);
  mel.energies(sound, 0, 10, plain);
  EXPECT_NE(plain[799], energies[799]);
}

TEST(LogMelFeatures, PaddingAndBounds) {
  const auto mel = speech::LogMel::create(8).value();
  const auto size = [&](size_t samples, int64_t least) {
    const auto got = log_mel_features(mel, tone(samples), least);
    return got.ok() ? static_cast<int64_t>(got->size() / 8) : -1;
  };
  EXPECT_EQ(size(480, 0), 4);  // 3 frames, made even
  EXPECT_EQ(size(480, 3000), 3000);
  EXPECT_EQ(size(480000, 3000), 3000);
  EXPECT_EQ(size(200, 0), -1);
  EXPECT_EQ(size(480001, 0), -1);
  const std::vector<float> padded = log_mel_features(mel, tone(480), 3000).value();
  EXPECT_EQ(padded[3 * 8], 0);
}

TEST(SpeechTokenizer, RanksWithTheirSpecialTokens) {
  const auto dir = ScratchDir::create().value();
  const std::vector<std::filesystem::path> folders = {dir.path() / "none", dir.path()};
  EXPECT_THAT(std::string(message(load_speech_tokenizer(folders).status())),
              HasSubstr("there is no multilingual.tiktoken and no other tokenizer in"));
  // "a", "b", an omitted rank.
  ASSERT_TRUE(
      write_file_atomic(dir.path() / "multilingual.tiktoken", "YQ== 0\nYg== 1\n= 2\n").ok());
  const auto tokenizer = load_speech_tokenizer(folders);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->token_id("<|endoftext|>"), 3);
  EXPECT_EQ((*tokenizer)->token_id("<|startoftranscript|>"), 4);
  EXPECT_EQ((*tokenizer)->token_id("<|en|>"), 5);
  EXPECT_EQ((*tokenizer)->token_id("<|yue|>"), 104);
  EXPECT_EQ((*tokenizer)->token_id("<|translate|>"), 105);
  EXPECT_EQ((*tokenizer)->token_id("<|0.00|>"), 111);
  EXPECT_EQ((*tokenizer)->token_id("<|30.00|>"), 1611);
  const auto ids = (*tokenizer)->encode("<|en|>ab", {.add_special_tokens = false});
  EXPECT_EQ(*ids, (std::vector<int32_t>{5, 0, 1}));
  EXPECT_EQ((*tokenizer)->decode(*ids, false), "<|en|>ab");
}

}  // namespace
}  // namespace nereid::backend
