// WAV files for tests, also such as no program writes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "speech/audio/sound.h"

namespace nereid::speech::testing_only {

struct WavHeader {
  int rate = kSampleRate;
  int channels = 1;
  bool is_float = false;       // 32 bits, else PCM of 16
  int tag = 0;                 // of the encoding; 0: that of `is_float`
  uint32_t claimed_bytes = 0;  // of samples; 0: as there are
};

// `samples` (interleaved) in [-1, 1], of 16 bits rounded to multiples of 1 / 32768.
inline std::string wav(std::span<const float> samples, const WavHeader& header) {
  std::string body;
  for (const float sample : samples) {
    char bytes[4];
    if (header.is_float) {
      std::memcpy(bytes, &sample, 4);
      body.append(bytes, 4);
      continue;
    }
    const auto value =
        static_cast<int16_t>(std::clamp<long>(std::lround(sample * 32768), -32768, 32767));
    std::memcpy(bytes, &value, 2);
    body.append(bytes, 2);
  }
  std::string out;
  const auto number = [&out](uint32_t value, size_t size) {
    out.append(reinterpret_cast<const char*>(&value), size);
  };
  const uint32_t width = header.is_float ? 4 : 2;
  const auto channels = static_cast<uint32_t>(header.channels);
  const auto rate = static_cast<uint32_t>(header.rate);
  const auto size = static_cast<uint32_t>(body.size());
  out += "RIFF";
  number(36 + size, 4);
  out += "WAVEfmt ";
  number(16, 4);
  number(header.tag != 0 ? static_cast<uint32_t>(header.tag) : header.is_float ? 3 : 1, 2);
  number(channels, 2);
  number(rate, 4);
  number(rate * channels * width, 4);
  number(channels * width, 2);
  number(8 * width, 2);
  out += "data";
  number(header.claimed_bytes != 0 ? header.claimed_bytes : size, 4);
  return out + body;
}

}  // namespace nereid::speech::testing_only
