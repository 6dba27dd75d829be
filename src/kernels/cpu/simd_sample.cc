// Passes over a row of logits.
#include "kernels/cpu/simd.h"
#include "kernels/cpu/simd_raw.h"

namespace nereid::kernels::cpu::NEREID_SIMD {

LogitsScan scan_logits(const float* x, int64_t count, float* piece_largest) {
  const F infinity = set1(kInfinity);
  constexpr uint32_t kAll = (1u << kLanes) - 1;
  float most = -kInfinity;
  uint32_t sound = kAll;
  for (int64_t first = 0, piece = 0; first < count; first += kLogitsPiece, ++piece) {
    const int64_t end = min_of(count, first + kLogitsPiece);
    F piece_most = set1(-kInfinity);
    int64_t i = first;
    for (; i + kLanes <= end; i += kLanes) {
      const F value = load(x + i);
      sound &= less_bits(value, infinity);
      piece_most = vmax(piece_most, value);
    }
    if (i < end) {
      const F value = load_part(x + i, end - i, -kInfinity);
      sound &= less_bits(value, infinity);
      piece_most = vmax(piece_most, value);
    }
    const float value = largest(piece_most);
    piece_largest[piece] = value;
    most = most < value ? value : most;
  }
  return {most, sound == kAll};
}

// Lanes are summed in f32 over a piece, pieces in f64.
double sum_weights(const float* x, int64_t count, float largest, float temperature, float threshold,
                   int64_t* num) {
  const F top = set1(largest), divisor = set1(temperature), limit = set1(threshold);
  double total = 0;
  int64_t taken = 0;
  for (int64_t first = 0; first < count; first += kLogitsPiece) {
    const int64_t end = min_of(count, first + kLogitsPiece);
    F piece = set1(0);
    for (int64_t i = first; i < end; i += kLanes) {
      const int64_t rest = end - i;
      const F value = rest >= kLanes ? load(x + i) : load_part(x + i, rest, -kInfinity);
      const uint32_t left_out = less_bits(value, limit);
      int64_t here = kLanes - __builtin_popcount(left_out);
      if (rest < kLanes) {
        for (int64_t lane = rest; lane < kLanes; ++lane) here -= !(left_out >> lane & 1);
      }
      taken += here;
      const F weight = exp(div(sub(value, top), divisor));
      piece = add(piece, if_less(value, limit, set1(0), weight));
    }
    total += sum(piece);
  }
  *num = taken;
  return total;
}

// Larger logits never get a lower bin, even with rounding. In f64, where the difference of two
// floats is finite and nonzero.
void bin_weights(const float* x, int64_t count, float largest, float temperature, float from,
                 float to, WeightBins& bins) {
  bins = {};
  const F top = set1(largest), divisor = set1(temperature);
  const double scale = to > from ? WeightBins::kCount / (double{to} - from) : 0;
  float weights[kLogitsPiece];
  for (int64_t first = 0; first < count; first += kLogitsPiece) {
    const int64_t size = min_of(count - first, kLogitsPiece);
    for (int64_t i = 0; i < size; i += kLanes) {
      const F value =
          i + kLanes <= size ? load(x + first + i) : load_part(x + first + i, size - i, -kInfinity);
      store(weights + i, exp(div(sub(value, top), divisor)));
    }
    for (int64_t i = 0; i < size; ++i) {
      const float value = x[first + i];
      if (!(value >= from && value <= to)) continue;
      const auto bin =
          min_of(static_cast<int64_t>((double{value} - from) * scale), WeightBins::kCount - 1);
      float& least = bins.least[bin];
      float& most = bins.most[bin];
      const bool is_first = bins.counts[bin]++ == 0;
      bins.sums[bin] += double{weights[i]};
      least = is_first || value < least ? value : least;
      most = is_first || value > most ? value : most;
    }
  }
}

}  // namespace nereid::kernels::cpu::NEREID_SIMD
