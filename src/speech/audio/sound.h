// Sound files of clients: WAV, FLAC, Ogg (Vorbis, Opus) and MP3 to samples at 16 kHz, one channel.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "speech/audio/resampler.h"

namespace nereid::speech {

inline constexpr int kSampleRate = 16000;

struct SoundLimits {
  double max_seconds = 4 * 3600;
  int max_channels = 8;
  int min_rate = 2000, max_rate = 384000;  // Hz
};

struct DecodeOptions {
  SoundLimits limits = {};
  // Called with the bytes of samples that are about to be held; an error ends the decoding.
  std::function<Status(size_t bytes)> hold = {};
  // Called for each block; true ends the decoding (Cancelled).
  std::function<bool()> is_unwanted = {};
};

struct Sound {
  Samples samples;  // at kSampleRate, in [-1, 1]; the mean of the file's channels
  double seconds() const { return static_cast<double>(samples.size()) / kSampleRate; }
};

// Decodes a whole file. InvalidArgument names the fault and what is allowed: another format, a
// header cut off, a length beyond the file, a rate, a number of channels or a duration beyond the
// limits, samples that are not finite, no samples. Headers are not trusted: each block is checked
// against the limits. Errors of `hold` are returned as they are. Takes about 10 ms for 30 s.
StatusOr<Sound> decode_sound(std::string_view file, const DecodeOptions& options = {});

}  // namespace nereid::speech
