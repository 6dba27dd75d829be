#include "speech/features/log_mel.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "speech/features/spectrum.h"

namespace nereid::speech {
namespace {

constexpr double kSampleHertz = 16000;

// Slaney's mel scale: linear up to 1 kHz, then logarithmic. Source: Slaney, "Auditory Toolbox"
// (1998), as librosa.hz_to_mel(htk=False).
constexpr double kHertzPerMel = 200.0 / 3, kLogBegins = 1000;
double mels_of(double hertz) {
  const double step = std::log(6.4) / 27;
  if (hertz < kLogBegins) return hertz / kHertzPerMel;
  return kLogBegins / kHertzPerMel + std::log(hertz / kLogBegins) / step;
}
double hertz_of(double mels) {
  const double step = std::log(6.4) / 27, begins = kLogBegins / kHertzPerMel;
  return mels < begins ? mels * kHertzPerMel : kLogBegins * std::exp(step * (mels - begins));
}

const std::array<double, kFrameSamples>& hann_window() {
  static const auto window = [] {
    std::array<double, kFrameSamples> out;
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(i) / kFrameSamples);
    return out;
  }();
  return window;
}

// Samples of frame t, mirrored in front, zeros behind.
void take_frame(std::span<const float> samples, int64_t t, size_t lane,
                std::array<Lanes, kFrameSamples>& out) {
  const auto& window = hann_window();
  const int64_t size = std::ssize(samples), begin = t * kFrameHop - kFrameSamples / 2;
  if (begin >= 0 && begin + kFrameSamples <= size) {
    const float* const from = samples.data() + begin;
    for (size_t i = 0; i < kFrameSamples; ++i)
      out[i][lane] = static_cast<double>(from[i]) * window[i];
    return;
  }
  for (int64_t i = 0; i < kFrameSamples; ++i) {
    const int64_t at = std::abs(begin + i);
    const float sample = at < size ? samples[static_cast<size_t>(at)] : 0.0f;
    out[static_cast<size_t>(i)][lane] =
        static_cast<double>(sample) * window[static_cast<size_t>(i)];
  }
}

constexpr float kLeast = -10;  // of the logarithms: energies of 1e-10
constexpr float kRange = 8;    // logarithms below the loudest

}  // namespace

StatusOr<LogMel> LogMel::create(int num_mels) {
  constexpr int kMost = 256;
  if (num_mels < 1 || num_mels > kMost)
    return invalid_argument("the number of mel filters is {}, which is not in [1, {}]", num_mels,
                            kMost);
  return LogMel(num_mels);
}

LogMel::LogMel(int num_mels) : num_mels_(num_mels) {
  const double top = mels_of(kSampleHertz / 2);
  const auto edge = [&](int i) { return hertz_of(top * i / (num_mels + 1)); };
  for (int i = 0; i < num_mels; ++i) {
    const double low = edge(i), middle = edge(i + 1), high = edge(i + 2);
    Filter filter;
    for (int bin = 0; bin < kBins; ++bin) {
      const double hertz = bin * kSampleHertz / kFrameSamples;
      const double weight =
          std::min((hertz - low) / (middle - low), (high - hertz) / (high - middle));
      if (weight <= 0) continue;
      if (filter.weights.empty()) filter.first = bin;
      filter.weights.push_back(weight * 2 / (high - low));
    }
    filters_.push_back(std::move(filter));
  }
}

void LogMel::energies(std::span<const float> samples, int64_t begin, int64_t end,
                      std::span<float> out) const {
  std::array<Lanes, kFrameSamples> frames = {};
  std::array<Lanes, kBins> spectrum;
  const auto width = static_cast<size_t>(num_mels_);
  for (int64_t t = begin; t < end; t += kLanes) {
    const auto count = static_cast<size_t>(std::min<int64_t>(kLanes, end - t));
    for (size_t lane = 0; lane < count; ++lane)
      take_frame(samples, t + static_cast<int64_t>(lane), lane, frames);
    energies_of(frames, spectrum);
    float* const rows = out.data() + static_cast<size_t>(t - begin) * width;
    for (size_t f = 0; f < width; ++f) {
      const Filter& filter = filters_[f];
      Lanes sum = {};
      for (size_t i = 0; i < filter.weights.size(); ++i)
        sum += spectrum[static_cast<size_t>(filter.first) + i] * filter.weights[i];
      const Lanes least = Lanes{} + 1e-10;
      sum = sum > least ? sum : least;
      Lanes logs;
      logarithms_of(sum, logs);
      for (size_t lane = 0; lane < count; ++lane)
        rows[lane * width + f] = static_cast<float>(logs[lane]);
    }
  }
}

Features::Features(LogMel mel, std::span<const float> samples)
    : mel_(std::move(mel)), samples_(samples) {
  constexpr int64_t kBlock = 1000;
  // Two frames behind the last whole one still have samples in them.
  const int64_t end = num_frames() + 3;
  std::vector<float> rows(static_cast<size_t>(kBlock * mel_.num_mels()));
  for (int64_t t = 0; t < end; t += kBlock) {
    const int64_t count = std::min(kBlock, end - t);
    mel_.energies(samples_, t, t + count, rows);
    const auto last = rows.begin() + count * mel_.num_mels();
    loudest_ = std::max(loudest_, *std::max_element(rows.begin(), last));
  }
}

std::vector<float> Features::window(int64_t begin, int64_t count, Behind behind,
                                    int64_t size) const {
  const auto width = static_cast<size_t>(mel_.num_mels());
  std::vector<float> out(static_cast<size_t>(size) * width);
  const int64_t computed = behind == Behind::kZeros ? count : size;
  mel_.energies(samples_, begin, begin + computed, out);
  const float least = std::max(kLeast, loudest_ - kRange);
  for (float& value : std::span(out).first(static_cast<size_t>(computed) * width))
    value = (std::max(value, least) + 4) / 4;
  return out;
}

}  // namespace nereid::speech
