// Log-mel features of sound, those that Whisper was trained with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace nereid::speech {

inline constexpr int kFrameHop = 160;  // samples between frames: 10 ms
inline constexpr int kFramesPerSecond = 100;
inline constexpr int kWindowFrames = 3000;  // of one input of the encoder: 30 s

// Frames t = 0, 1, ... of 400 samples around sample 160 t, weighted by a periodic Hann window;
// samples before the first are mirrored, those behind the last are 0. Energies of the spectrum are
// summed by triangular filters on Slaney's mel scale, each of area 1. Immutable; thread safe.
// Source: "Robust Speech Recognition via Large-Scale Weak Supervision" (Radford et al.), section
// 2.2; the filters are those of librosa.filters.mel(sr=16000, n_fft=400).
class LogMel {
 public:
  // InvalidArgument: `num_mels` is not in [1, 256].
  static StatusOr<LogMel> create(int num_mels);

  int num_mels() const { return num_mels_; }

  // Base 10 logarithms of the energies, at least -10, of frames [begin, end) of `samples` (16 kHz):
  // out is [end - begin, num_mels]. Takes some 5 ms for 30 s.
  void energies(std::span<const float> samples, int64_t begin, int64_t end,
                std::span<float> out) const;

 private:
  struct Filter {
    int first = 0;  // bin of weights[0]
    std::vector<double> weights;
  };
  explicit LogMel(int num_mels);

  int num_mels_;
  std::vector<Filter> filters_;
};

// Features of a whole recording, in windows as the encoder takes them.
class Features {
 public:
  // `samples` must outlive it. Reads all of them, for the loudest energy.
  Features(LogMel mel, std::span<const float> samples);

  int num_mels() const { return mel_.num_mels(); }
  // Whole frames of the recording.
  int64_t num_frames() const { return static_cast<int64_t>(samples_.size()) / kFrameHop; }

  // Values behind the frames of a window.
  enum class Behind {
    kZeros,    // zeros, as the reference's transcription pads
    kSilence,  // features of silence, as its language detection and feature extractors pad
  };
  // [size, num_mels] of frames [begin, begin + count); count <= size. Energies are raised to at
  // most 8 below the recording's largest, then (x + 4) / 4.
  std::vector<float> window(int64_t begin, int64_t count, Behind behind,
                            int64_t size = kWindowFrames) const;

 private:
  LogMel mel_;
  std::span<const float> samples_;
  float loudest_ = -10;
};

}  // namespace nereid::speech
