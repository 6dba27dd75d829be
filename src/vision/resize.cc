// Separable resampling in 8 bits; see resize.h.
#include "vision/resize.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace nereid::vision {
namespace {

constexpr int kFractionBits = 22;  // of weights: 32 bits less those of a pixel and two of sums

double sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

double value_at(Filter filter, double x) {
  switch (filter) {
    case Filter::kLanczos:
      return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
    case Filter::kBilinear:
      return std::max(0.0, 1 - std::abs(x));
    case Filter::kBicubic:
      return cubic(x);
    case Filter::kBox:
      return x > -0.5 && x <= 0.5 ? 1 : 0;
    case Filter::kHamming:
      x = std::abs(x);
      return x < 1 ? sinc(x) * (0.54 + 0.46 * std::cos(std::numbers::pi * x)) : 0;
  }
  return 0;
}

double support_of(Filter filter) {
  switch (filter) {
    case Filter::kLanczos:
      return 3;
    case Filter::kBicubic:
      return 2;
    case Filter::kBox:
      return 0.5;
    case Filter::kBilinear:
    case Filter::kHamming:
      break;
  }
  return 1;
}

// The inputs of each output along one axis: weights of `count` inputs from `first` on.
struct Taps {
  struct Span {
    int32_t first = 0, count = 0;
  };
  int32_t most = 0;              // inputs of an output
  std::vector<Span> spans;       // of outputs
  std::vector<int32_t> weights;  // [outputs, most]
};

int32_t most_taps(int32_t in, int64_t out, Filter filter) {
  const double scale = std::max(1.0, static_cast<double>(in) / static_cast<double>(out));
  return static_cast<int32_t>(std::ceil(support_of(filter) * scale)) * 2 + 1;
}

// For outputs [begin, begin + count) of `out`, from `in` inputs.
Taps taps_of(int32_t in, int64_t out, int64_t begin, int32_t count, Filter filter) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double widening = std::max(1.0, scale);
  const double support = support_of(filter) * widening;
  Taps taps;
  taps.most = most_taps(in, out, filter);
  taps.spans.resize(static_cast<size_t>(count));
  taps.weights.resize(static_cast<size_t>(count) * static_cast<size_t>(taps.most));
  std::vector<double> exact(static_cast<size_t>(taps.most));
  for (int32_t i = 0; i < count; ++i) {
    const double center = (static_cast<double>(begin + i) + 0.5) * scale;
    const int32_t first = std::max(0, static_cast<int32_t>(center - support + 0.5));
    const int32_t end = std::min(in, static_cast<int32_t>(center + support + 0.5));
    double sum = 0;
    for (int32_t k = 0; k < end - first; ++k) {
      const double weight = value_at(filter, (k + first - center + 0.5) * (1 / widening));
      exact[static_cast<size_t>(k)] = weight;
      sum += weight;
    }
    int32_t* const weights = taps.weights.data() + static_cast<size_t>(i) * exact.size();
    for (int32_t k = 0; k < end - first; ++k) {
      double weight = exact[static_cast<size_t>(k)];
      if (sum != 0) weight /= sum;
      weight *= 1 << kFractionBits;
      weights[k] = static_cast<int32_t>(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
    taps.spans[static_cast<size_t>(i)] = {first, end - first};
  }
  return taps;
}

uint8_t rounded(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
}

constexpr int32_t kHalf = 1 << (kFractionBits - 1);

// Rows [first_row, first_row + rows) of `in` along x.
void filter_rows(const Image& in, const Taps& taps, int32_t first_row, Image& out) {
  const auto width = static_cast<size_t>(in.width);
  uint8_t* to = out.rgb.data();
  for (int32_t y = 0; y < out.height; ++y) {
    const uint8_t* const row = in.rgb.data() + 3 * width * static_cast<size_t>(first_row + y);
    const int32_t* weights = taps.weights.data();
    for (const Taps::Span& span : taps.spans) {
      int32_t sums[3] = {kHalf, kHalf, kHalf};
      const uint8_t* from = row + 3 * static_cast<size_t>(span.first);
      for (int32_t k = 0; k < span.count; ++k, from += 3)
        for (int c = 0; c < 3; ++c) sums[c] += from[c] * weights[k];
      for (const int32_t sum : sums) *to++ = rounded(sum);
      weights += taps.most;
    }
  }
}

// `in` has the rows from `first_row` on.
void filter_columns(const Image& in, const Taps& taps, int32_t first_row, Image& out) {
  const size_t row_bytes = 3 * static_cast<size_t>(in.width);
  std::vector<int32_t> sums(row_bytes);
  uint8_t* to = out.rgb.data();
  const int32_t* weights = taps.weights.data();
  for (const Taps::Span& span : taps.spans) {
    std::ranges::fill(sums, kHalf);
    const uint8_t* from = in.rgb.data() + row_bytes * static_cast<size_t>(span.first - first_row);
    for (int32_t k = 0; k < span.count; ++k, from += row_bytes)
      for (size_t i = 0; i < row_bytes; ++i) sums[i] += from[i] * weights[k];
    for (const int32_t sum : sums) *to++ = rounded(sum);
    weights += taps.most;
  }
}

Image blank(int32_t width, int32_t height) {
  return {width, height,
          std::vector<uint8_t>(3 * static_cast<size_t>(width) * static_cast<size_t>(height))};
}

}  // namespace

StatusOr<Image> resize(const Image& image, int64_t width, int64_t height, Filter filter,
                       const Window& window, const std::function<Status(size_t)>& hold) {
  const auto columns = static_cast<size_t>(window.width), rows = static_cast<size_t>(window.height);
  const size_t tap_bytes =
      sizeof(int32_t) * (columns * static_cast<size_t>(most_taps(image.width, width, filter)) +
                         rows * static_cast<size_t>(most_taps(image.height, height, filter)));
  // Between the passes there are at most as many rows as `image` has.
  const size_t between = 3 * columns * static_cast<size_t>(image.height);
  if (hold) RETURN_IF_ERROR(hold(tap_bytes + between + 3 * columns * rows));
  const Taps vertical = taps_of(image.height, height, window.y, window.height, filter);
  int32_t first_row = image.height, end_row = 0;
  for (const Taps::Span& span : vertical.spans) {
    first_row = std::min(first_row, span.first);
    end_row = std::max(end_row, span.first + span.count);
  }
  const Taps horizontal = taps_of(image.width, width, window.x, window.width, filter);
  Image middle = blank(window.width, end_row - first_row);
  filter_rows(image, horizontal, first_row, middle);
  Image out = blank(window.width, window.height);
  filter_columns(middle, vertical, first_row, out);
  return out;
}

}  // namespace nereid::vision
