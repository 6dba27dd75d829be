// Log-mel features against another implementation (tests/speech/log_mel.py).
#include "speech/features/log_mel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <numbers>

#include "base/file.h"
#include "base/json.h"
#include "base/testing/source_dir.h"
#include "speech/audio/sound.h"
#include "speech/features/spectrum.h"

namespace nereid::speech {
namespace {

Sound boats() { return *decode_sound(*read_file(source_dir() + "/tests/speech/boats.flac")); }

// Within 1e-5 of the published features.
TEST(LogMelTest, EqualsAnotherImplementation) {
  const json::value golden = *parse_json(*read_file(source_dir() + "/tests/golden/log_mel.json"));
  const Sound sound = boats();
  for (const int num_mels : {80, 128}) {
    const Features features(*LogMel::create(num_mels), sound.samples);
    EXPECT_EQ(features.num_frames(), 233);
    const std::vector<float> window =
        features.window(0, features.num_frames(), Features::Behind::kSilence);
    ASSERT_EQ(window.size(), static_cast<size_t>(kWindowFrames * num_mels));
    const json::array& frames = golden.at("frames").as_array();
    double worst = 0;
    for (size_t i = 0; i < frames.size(); ++i) {
      const json::array& row = golden.at(std::to_string(num_mels)).at(i).as_array();
      for (size_t m = 0; m < row.size(); ++m)
        worst = std::max(
            worst,
            std::abs(row[m].to_number<double>() -
                     window[frames[i].to_number<size_t>() * static_cast<size_t>(num_mels) + m]));
    }
    EXPECT_LT(worst, 1e-5) << num_mels;
    RecordProperty("worst_" + std::to_string(num_mels), std::to_string(worst * 1e9) + "e-9");
    // The reference's transcription has zeros behind the recording's whole frames.
    const auto zeros = features.window(0, features.num_frames(), Features::Behind::kZeros);
    const size_t end = 233 * static_cast<size_t>(num_mels);
    EXPECT_TRUE(
        std::equal(zeros.begin(), zeros.begin() + static_cast<int64_t>(end), window.begin()));
    EXPECT_TRUE(std::all_of(zeros.begin() + static_cast<int64_t>(end), zeros.end(),
                            [](float x) { return x == 0; }));
  }
}

TEST(LogMelTest, AWindowFurtherOnHasTheSameRows) {
  const Sound sound = boats();
  const Features features(*LogMel::create(80), sound.samples);
  const auto all = features.window(0, 233, Features::Behind::kZeros);
  const auto part = features.window(101, 50, Features::Behind::kZeros);
  EXPECT_TRUE(std::equal(part.begin(), part.begin() + 50 * 80, all.begin() + 101 * 80));
}

TEST(LogMelTest, SilenceAndLittle) {
  for (const size_t size : {1u, 2u, 160u, 399u, 16000u}) {
    const std::vector<float> silence(size);
    const Features features(*LogMel::create(80), silence);
    for (const float x : features.window(0, features.num_frames(), Features::Behind::kSilence))
      ASSERT_EQ(x, (-10.0f + 4) / 4);
  }
  EXPECT_FALSE(LogMel::create(0).ok());
  EXPECT_EQ(message(LogMel::create(1000).status()),
            "the number of mel filters is 1000, which is not in [1, 256]");
}

TEST(SpectrumTest, EqualsTheDefinition) {
  std::array<Lanes, kFrameSamples> frames;
  for (size_t i = 0; i < kFrameSamples; ++i)
    for (size_t lane = 0; lane < kLanes; ++lane)
      frames[i][lane] = std::sin(static_cast<double>((i + 1) * (i + 3 * lane + 1) % 97));
  std::array<Lanes, kBins> out;
  energies_of(frames, out);
  for (size_t k = 0; k < kBins; ++k)
    for (size_t lane = 0; lane < kLanes; ++lane) {
      std::complex<double> sum = 0;
      for (size_t i = 0; i < kFrameSamples; ++i)
        sum += frames[i][lane] *
               std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(i * k % kFrameSamples) /
                                   kFrameSamples);
      ASSERT_NEAR(out[k][lane], std::norm(sum), 1e-9) << k << " " << lane;
    }
}

TEST(SpectrumTest, LogarithmsOfAllSizes) {
  for (double x = 1e-12; x < 1e12; x *= 1.0137) {
    Lanes out;
    logarithms_of(Lanes{x, x * 3, 1 / x, 1}, out);
    ASSERT_NEAR(out[0], std::log10(x), 1e-12);
    ASSERT_NEAR(out[1], std::log10(x * 3), 1e-12);
    ASSERT_NEAR(out[2], -std::log10(x), 1e-12);
    ASSERT_EQ(out[3], 0);
  }
}

}  // namespace
}  // namespace nereid::speech
