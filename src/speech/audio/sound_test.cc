// Sound files, whole and hostile, to samples.
#include "speech/audio/sound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <string>

#include "base/file.h"
#include "base/testing/source_dir.h"
#include "speech/audio/test_wav.h"

namespace nereid::speech {
namespace {

using ::testing::HasSubstr;

std::string file_of(std::string_view name) {
  return *read_file(source_dir() + "/tests/speech/" + std::string(name));
}

std::vector<float> tone(double hertz, int rate, double seconds) {
  std::vector<float> out(static_cast<size_t>(rate * seconds));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(
        0.5 * std::sin(2 * std::numbers::pi * hertz * static_cast<double>(i) / rate));
  return out;
}

std::string error_of(std::string_view file, const DecodeOptions& options = {}) {
  const auto sound = decode_sound(file, options);
  EXPECT_FALSE(sound.ok());
  EXPECT_EQ(sound.status().code(), absl::StatusCode::kInvalidArgument) << sound.status();
  return std::string(message(sound.status()));
}

double correlation(std::span<const float> a, std::span<const float> b, size_t shift) {
  double aa = 0, bb = 0, ab = 0;
  for (size_t i = 0; i + shift < std::min(a.size(), b.size()); ++i) {
    aa += a[i] * a[i], bb += b[i + shift] * b[i + shift], ab += a[i] * b[i + shift];
  }
  return ab / std::sqrt(aa * bb + 1e-30);
}

TEST(SoundTest, EveryFormatHasTheSameSentence) {
  const auto flac = decode_sound(file_of("boats.flac"));
  ASSERT_TRUE(flac.ok()) << flac.status();
  EXPECT_EQ(flac->samples.size(), 37337u);
  const auto wav = decode_sound(testing_only::wav(flac->samples, {}));
  ASSERT_TRUE(wav.ok()) << wav.status();
  EXPECT_EQ(wav->samples, flac->samples);
  struct Case {
    const char* name;
    double least;
    size_t most_delay;  // samples that the encoder puts in front
  };
  for (const Case& c : {Case{"boats.ogg", 0.98, 1}, Case{"boats.opus", 0.9, 1},
                        Case{"boats.mp3", 0.97, 1}, Case{"boats_ulaw.wav", 0.8, 1}}) {
    const auto other = decode_sound(file_of(c.name));
    ASSERT_TRUE(other.ok()) << c.name << other.status();
    EXPECT_NEAR(other->seconds(), flac->seconds(), 0.15) << c.name;
    double best = 0;
    for (size_t shift = 0; shift < c.most_delay; ++shift)
      best = std::max(best, correlation(flac->samples, other->samples, shift));
    EXPECT_GT(best, c.least) << c.name << best;
  }
}

TEST(SoundTest, OtherRatesBecome16Kilohertz) {
  const std::vector<float> wanted = tone(440, 16000, 2);
  for (const int rate : {8000, 11025, 22050, 32000, 44100, 48000, 96000, 384000}) {
    const auto sound = decode_sound(testing_only::wav(tone(440, rate, 2), {.rate = rate}));
    ASSERT_TRUE(sound.ok()) << rate << sound.status();
    ASSERT_NEAR(static_cast<double>(sound->samples.size()), 32000, 2) << rate;
    double worst = 0;
    for (size_t i = 1000; i < 31000; ++i)
      worst = std::max<double>(worst, std::abs(sound->samples[i] - wanted[i]));
    EXPECT_LT(worst, 3e-5) << rate;  // a step of 16 bits
  }
}

TEST(SoundTest, ChannelsBecomeTheirMean) {
  std::vector<float> both;
  for (int i = 0; i < 1000; ++i) both.push_back(0.5f), both.push_back(-0.25f);
  const auto sound = decode_sound(testing_only::wav(both, {.channels = 2, .is_float = true}));
  ASSERT_TRUE(sound.ok()) << sound.status();
  ASSERT_EQ(sound->samples.size(), 1000u);
  EXPECT_FLOAT_EQ(sound->samples[500], 0.125f);
}

TEST(SoundTest, HostileHeadersAreRefusedByName) {
  const std::vector<float> samples(1600, 0.1f);
  EXPECT_THAT(error_of(""), HasSubstr("is empty; allowed are WAV"));
  EXPECT_THAT(error_of("hello there"), HasSubstr("no known format"));
  EXPECT_THAT(error_of(std::string("\0\0\0\x18", 4) + "ftypM4A isommp42"),
              HasSubstr("is MP4 (m4a)"));
  EXPECT_THAT(error_of("\x1a\x45\xdf\xa3 and so on"), HasSubstr("is WebM"));
  EXPECT_THAT(error_of(testing_only::wav(samples, {.rate = 0})),
              HasSubstr("the sample rate is 0 Hz, which is not in [2000, 384000]"));
  EXPECT_THAT(error_of(testing_only::wav(samples, {.rate = 2000000000})),
              HasSubstr("2000000000 Hz"));
  EXPECT_THAT(error_of(testing_only::wav(samples, {.channels = 1000})),
              HasSubstr("the number of channels is 1000, which is not in [1, 8]"));
  EXPECT_THAT(error_of(testing_only::wav(samples, {.channels = 0})), HasSubstr("channels is 0"));
  EXPECT_THAT(error_of(testing_only::wav({}, {})), HasSubstr("no samples"));
  const std::string whole = testing_only::wav(samples, {});
  for (size_t size = 13; size < 44; ++size)
    EXPECT_THAT(error_of(whole.substr(0, size)), HasSubstr("WAV file")) << size;
  EXPECT_THAT(error_of(whole.substr(0, whole.size() / 2)), HasSubstr("cut off"));
  // 4 GB and less of samples in a small file.
  EXPECT_THAT(error_of(testing_only::wav(samples, {.claimed_bytes = 0x7fff0000})),
              HasSubstr("2147418112 bytes of samples"));
  // The length of a file that was written into a pipe.
  EXPECT_TRUE(decode_sound(testing_only::wav(samples, {.claimed_bytes = 0xffffffff})).ok());
  EXPECT_THAT(error_of(testing_only::wav(samples, {.tag = 2})), HasSubstr("cannot be read"));
  const std::string flac = file_of("boats.flac");
  for (const size_t size : {5u, 20u, 60u}) EXPECT_FALSE(decode_sound(flac.substr(0, size)).ok());
  EXPECT_THAT(error_of("OggS and so on, not much of a page"), HasSubstr("neither Vorbis nor Opus"));
  const std::string ogg = file_of("boats.ogg");
  EXPECT_THAT(error_of(ogg.substr(0, 1000)), HasSubstr("Vorbis headers are damaged"));
  for (const char* name : {"boats.flac", "boats.opus"}) {
    const std::string file = file_of(name);
    EXPECT_FALSE(decode_sound(file.substr(0, file.size() / 2)).ok()) << name;
  }
  EXPECT_THAT(error_of("ID3 and nothing else"), HasSubstr("no frame of MP3"));
  // Frames behind damage are found again.
  std::string mp3 = file_of("boats.mp3");
  for (size_t i = 5000; i < 5500; ++i) mp3[i] = static_cast<char>(mp3[i] ^ 0x5a);
  EXPECT_TRUE(decode_sound(mp3).ok());
  EXPECT_THAT(error_of(flac.substr(0, flac.size() / 2)),
              HasSubstr("at 0.0 s the file is damaged: "));
}

TEST(SoundTest, SamplesThatAreNotFiniteAreRefused) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> samples(3000, 0.1f);
    samples[2001] = bad;
    EXPECT_THAT(error_of(testing_only::wav(samples, {.channels = 2, .is_float = true})),
                HasSubstr("sample 1000 of channel 1 is not a finite number"));
  }
  const auto loud = decode_sound(
      testing_only::wav(std::vector<float>{1e30f, -1e30f, 0.5f}, {.rate = 8000, .is_float = true}));
  ASSERT_TRUE(loud.ok()) << loud.status();
  for (const float sample : loud->samples) EXPECT_LE(std::abs(sample), 1.0f);
}

TEST(SoundTest, DurationAndMemoryAreBounded) {
  DecodeOptions options;
  options.limits.max_seconds = 1.5;
  EXPECT_THAT(error_of(file_of("boats.flac"), options), HasSubstr("longer than the 2 s"));
  options.limits.max_seconds = 10;
  size_t held = 0;
  options.hold = [&](size_t bytes) {
    held = bytes;
    return ok();
  };
  const auto sound = decode_sound(file_of("boats.flac"), options);
  ASSERT_TRUE(sound.ok());
  EXPECT_GE(held, sound->samples.capacity() * sizeof(float));
  options.hold = [](size_t bytes) { return unavailable("no room for {}", bytes); };
  EXPECT_EQ(decode_sound(file_of("boats.flac"), options).status().code(),
            absl::StatusCode::kUnavailable);
  options.hold = nullptr;
  options.is_unwanted = [] { return true; };
  EXPECT_EQ(decode_sound(file_of("boats.flac"), options).status().code(),
            absl::StatusCode::kCancelled);
}

// Minutes of silence in a small file: the blocks are counted, not the header's length.
TEST(SoundTest, ABombEndsAtTheLimit) {
  const std::string silence = testing_only::wav(std::vector<float>(1 << 20), {.rate = 2000});
  DecodeOptions options;
  options.limits.max_seconds = 60;
  size_t most = 0;
  options.hold = [&](size_t bytes) {
    most = std::max(most, bytes);
    return ok();
  };
  EXPECT_THAT(error_of(silence, options), HasSubstr("longer than the 60 s"));
  EXPECT_LT(most, size_t{16} << 20);
}

}  // namespace
}  // namespace nereid::speech
