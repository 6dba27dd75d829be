// Test cases of every op, for kernels of any device: inputs, outputs of `ref`, tolerances from
// sizes, norms and rounding, and splits of a case that must not change any bit.
#pragma once

#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/api/ops.h"
#include "kernels/testing/image.h"

namespace nereid::kernels::testing {

// Half an ulp, relative.
inline constexpr double kEpsF32 = 0x1p-24;

// Error of f8e4m3 products relative to the sum of magnitudes: Hopper's tensor cores truncate each
// product to 2^-13 of the largest of those added at once (DeepSeek-AI 2024, "DeepSeek-V3 Technical
// Report", section 3.3.2), a few times the mean.
inline constexpr double kEpsFp8Sum = 0x1p-11;
// Error bound of an f32 sum of k products in any order, relative to the sum of magnitudes: a few
// standard deviations of k roundings.
inline double sum_error(int64_t k, bool is_f8e4m3 = false) {
  return kEpsF32 * (4 * std::sqrt(static_cast<double>(k)) + 8) + (is_f8e4m3 ? kEpsFp8Sum : 0.0);
}
// One ulp: the kernel's sum may be on the other side of a rounding boundary.
inline constexpr double kStepBF16 = 0x1p-7;

// Token (or row) ranges [begin, begin + count), run in order.
using Split = std::vector<std::pair<int64_t, int64_t>>;

template <class Op>
struct Case {
  std::string name;
  Image before;
  Image after;  // outputs of ref
  // Arguments for tokens [begin, begin + count) with the image at `base`.
  std::function<Op(std::byte* base, int64_t begin, int64_t count)> args;
  int64_t tokens = 0;
  std::vector<Region> outputs;
  std::vector<Region> scratch;  // arbitrary contents afterwards
  std::vector<Split> splits;    // each covers all tokens
  // Replaces the comparison of `outputs` with `after` if several answers are right.
  std::function<Status(const Case& self, const Image& got, double operand_epsilon)> check;
};

// All cases of an op; built on first use, then cached.
template <class Op>
const std::vector<Case<Op>>& cases();
template <>
const std::vector<Case<Embed>>& cases<Embed>();
template <>
const std::vector<Case<AddPositions>>& cases<AddPositions>();
template <>
const std::vector<Case<Norm>>& cases<Norm>();
template <>
const std::vector<Case<Linear>>& cases<Linear>();
template <>
const std::vector<Case<FusedLinear>>& cases<FusedLinear>();
template <>
const std::vector<Case<Rope>>& cases<Rope>();
template <>
const std::vector<Case<Attention>>& cases<Attention>();
template <>
const std::vector<Case<CrossAttention>>& cases<CrossAttention>();
template <>
const std::vector<Case<CrossScores>>& cases<CrossScores>();
template <>
const std::vector<Case<StoreKv>>& cases<StoreKv>();
template <>
const std::vector<Case<Glu>>& cases<Glu>();
template <>
const std::vector<Case<Activate>>& cases<Activate>();
template <>
const std::vector<Case<Add>>& cases<Add>();
template <>
const std::vector<Case<Xielu>>& cases<Xielu>();
template <>
const std::vector<Case<SoftCap>>& cases<SoftCap>();
template <>
const std::vector<Case<Route>>& cases<Route>();
template <>
const std::vector<Case<ExpertLinear>>& cases<ExpertLinear>();
template <>
const std::vector<Case<HeadLinear>>& cases<HeadLinear>();
template <>
const std::vector<Case<WeightedSum>>& cases<WeightedSum>();
template <>
const std::vector<Case<SelectExperts>>& cases<SelectExperts>();
template <>
const std::vector<Case<ScaleByPosition>>& cases<ScaleByPosition>();
template <>
const std::vector<Case<AddFeatures>>& cases<AddFeatures>();
template <>
const std::vector<Case<AddTilePositions>>& cases<AddTilePositions>();
template <>
const std::vector<Case<GateRows>>& cases<GateRows>();
template <>
const std::vector<Case<GatherRows>>& cases<GatherRows>();
template <>
const std::vector<Case<BlendRows>>& cases<BlendRows>();
template <>
const std::vector<Case<ShiftRows>>& cases<ShiftRows>();
template <>
const std::vector<Case<Quantize>>& cases<Quantize>();
template <>
const std::vector<Case<LowRank>>& cases<LowRank>();
template <>
const std::vector<Case<Sample>>& cases<Sample>();

// The planes of a weight in an image.
struct StoredWeight {
  WeightView shape;  // without addresses
  Offset data = 0, scales = 0, exponents = 0, zeros = 0, minima = 0;

  WeightView at(std::byte* base) const {
    WeightView w = shape;
    w.data = base + data;
    if (w.format.scheme == Scheme::kFloat4)
      w.exponents = reinterpret_cast<const uint8_t*>(base + exponents);
    else if (!w.format.is_float())
      w.scales = reinterpret_cast<const float*>(base + scales);
    if (w.format.zeros) w.zeros = reinterpret_cast<const uint8_t*>(base + zeros);
    if (w.format.minima) w.minima = reinterpret_cast<const float*>(base + minima);
    return w;
  }
};
// Adds a weight (of all experts) to an image; `matrix` is set to the dequantised numbers.
StoredWeight add_weight(Image& image, std::vector<BF16>& matrix, const WeightView& shape);

// Stores a row as f8e4m3 or i8 with its scale; `row` is set to the dequantised numbers.
template <class T>
void store_scaled_row(std::span<BF16> row, T* stored, float& scale);

// [0, tokens) in parts of <= `size`.
Split pieces(int64_t tokens, int64_t size);

}  // namespace nereid::kernels::testing
