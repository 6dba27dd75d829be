#include "kernels/api/quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/round_up.h"
#include "kernels/api/ops.h"
#include "kernels/api/pack.h"

namespace nereid::kernels {
namespace {

struct GroupCodes {
  float scale = 0;
  int32_t zero = 0;
  float minimum = 0;
};

// Scale and zero point of a group.
GroupCodes measure(const WeightFormat& format, std::span<const BF16> group) {
  float smallest = 0, largest = 0;
  for (const BF16 x : group) {
    smallest = std::min(smallest, to_float(x));
    largest = std::max(largest, to_float(x));
  }
  const int32_t zero = format.default_zero();
  if (!format.zeros && !format.minima && format.bits == 4) {
    // The number of largest magnitude maps to integer 0, the farthest from the zero point: with 16
    // integers each one counts.
    const float extreme = largest > -smallest ? largest : smallest;
    return {-extreme / static_cast<float>(zero), zero};
  }
  if (!format.zeros && !format.minima)
    return {std::max(largest, -smallest) / static_cast<float>(zero - 1), zero};
  const auto top = static_cast<float>(2 * zero - 1);
  // Divided first: the difference of two bf16 numbers may overflow.
  const float scale = largest / top - smallest / top;
  if (format.minima) return {scale, 0, -smallest};
  if (scale == 0) return {0, zero};
  return {scale, std::clamp(static_cast<int32_t>(std::lround(-smallest / scale)), 0, 2 * zero - 1)};
}

constexpr int kF8Scales = 8;  // candidate scales of a row

// Vector types: the compiler does not vectorise these loops at this optimisation level.
using Floats = float __attribute__((vector_size(16)));
using Words = uint32_t __attribute__((vector_size(16)));
constexpr size_t kLanes = 4;

// Squared error of rounding row * factor to f8e4m3, without saturation.
float squared_error(std::span<const float> row, float factor) {
  const Floats least = Floats{} + 0x1p-9f;
  std::array<Floats, 2> sums{};
  for (size_t i = 0; i < row.size(); i += sums.size() * kLanes)
    for (size_t j = 0; j < sums.size(); ++j) {
      Floats x;
      std::memcpy(&x, &row[i + j * kLanes], sizeof x);
      x *= factor;
      const Floats power = std::bit_cast<Floats>(std::bit_cast<Words>(x) & 0x7f800000u);
      // f8e4m3 step at x; adding and subtracting `shift` rounds to it.
      const Floats step = power * 0x1p-3f, shift = (step > least ? step : least) * 0x1.8p23f;
      const Floats off = x - (x + shift - shift);
      sums[j] += off * off;
    }
  const Floats sum = sums[0] + sums[1];
  return sum[0] + sum[1] + sum[2] + sum[3];
}

// The target of the row's largest magnitude with the least rounding error. Halves of a target round
// alike, except subnormals.
float best_largest(std::span<const BF16> row) {
  std::vector<float> numbers(round_up(row.size(), 2 * kLanes));
  std::ranges::transform(row, numbers.begin(), [](BF16 x) { return to_float(x); });
  float amax = 0;
  for (const float x : numbers) amax = std::max(amax, std::fabs(x));
  float best = kLargestF8E4M3, least = std::numeric_limits<float>::infinity();
  if (amax < kSmallestScaled) return best;
  for (int i = 0; i < kF8Scales; ++i) {
    const float most = kLargestF8E4M3 * kF8Scales / static_cast<float>(kF8Scales + i);
    const float error = squared_error(numbers, most / amax) / (most * most);
    if (error < least) best = most, least = error;
  }
  return best;
}

// Stores the row with its largest magnitude scaled to `most`; returns the factor of stored numbers.
template <class T, class Round>
float store_scaled(std::span<const BF16> row, float most, T* stored, Round round) {
  float amax = 0;
  bool finite = true;
  for (const BF16 x : row) {
    amax = std::max(amax, std::fabs(to_float(x)));
    finite = finite && std::isfinite(to_float(x));
  }
  const bool is_zero = !finite || amax < kSmallestScaled;
  const float factor = is_zero ? 0 : most / amax;
  for (size_t i = 0; i < row.size(); ++i)
    stored[i] = is_zero ? T{} : round(to_float(row[i]) * factor);
  if (!finite) return std::numeric_limits<float>::quiet_NaN();
  return is_zero ? 0 : amax / most;
}

// The e2m1 number nearest to x, ties to even: how many boundaries between numbers x is beyond.
int to_e2m1(float x) {
  const float m = std::fabs(x);
  const int magnitude = (m > 0.25f) + (m >= 0.75f) + (m > 1.25f) + (m >= 1.75f) + (m > 2.5f) +
                        (m >= 3.5f) + (m > 5.0f);
  return magnitude | (std::signbit(x) ? 8 : 0);
}

// Exponent byte of a group of kMxfp4.
int32_t exponent_of(std::span<const BF16> group) {
  float largest = 0;
  for (const BF16 x : group) largest = std::max(largest, std::fabs(to_float(x)));
  return largest > 0 ? std::max(0, std::ilogb(largest) - 2 + 127) : 0;
}

}  // namespace

QuantizedPlanes empty_planes(const WeightFormat& format, WeightLayout layout, int64_t n,
                             int64_t k) {
  QuantizedPlanes out;
  for (const PlaneShape& plane : planes_of(format, layout, n, k)) {
    if (plane.role == PlaneRole::kData) out.data.assign(plane.bytes, 0);
    if (plane.role == PlaneRole::kScales && plane.type == DType::kU8)
      out.exponents.assign(plane.bytes, 0);
    else if (plane.role == PlaneRole::kScales)
      out.scales.assign(plane.bytes / sizeof(float), 0);
    if (plane.role == PlaneRole::kZeros) out.zeros.assign(plane.bytes, 0);
    if (plane.role == PlaneRole::kMinima) out.minima.assign(plane.bytes / sizeof(float), 0);
  }
  return out;
}

float quantize_row(std::span<const BF16> row, F8E4M3* stored) {
  return store_scaled(row, kLargestF8E4M3, stored, to_f8e4m3);
}

float quantize_row(std::span<const BF16> row, int8_t* stored) {
  return store_scaled(row, 127, stored,
                      [](float x) { return static_cast<int8_t>(std::nearbyint(x)); });
}

Status quantize(const WeightFormat& format, WeightLayout layout, std::span<const BF16> matrix,
                int64_t k, QuantizedPlanes& out) {
  if (format.is_float() || format.ordered || !format_error(format).empty())
    return invalid_argument("quantize: {} is not a format to round to", text_of(format));
  const auto size = static_cast<int64_t>(matrix.size());
  if (k <= 0 || size == 0 || size % k != 0)
    return invalid_argument("quantize: {} numbers are not rows of {}", size, k);
  if (const std::string_view text = layout_error(layout, format, k); !text.empty())
    return invalid_argument("quantize: rows of {}: {}", k, text);
  const int64_t n = size / k, group_size = format.group_size(k), groups = format.num_groups(k);
  out = empty_planes(format, layout, n, k);
  const int32_t top = 2 * format.default_zero() - 1;
  for (int64_t row = 0; row < n; ++row)
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t begin = group * group_size, end = std::min(begin + group_size, k);
      const auto numbers =
          matrix.subspan(static_cast<size_t>(row * k + begin), static_cast<size_t>(end - begin));
      for (const BF16 x : numbers)
        if (!std::isfinite(to_float(x)))
          return invalid_argument("quantize: row {} has a number that is not finite", row);
      const auto at = static_cast<size_t>(group_index(layout, row, group, groups));
      if (format.scheme == Scheme::kFloat8) {
        std::vector<F8E4M3> stored(numbers.size());
        out.scales[at] = store_scaled(numbers, best_largest(numbers), stored.data(), to_f8e4m3);
        for (int64_t col = begin; col < end; ++col)
          out.data[static_cast<size_t>(integer_place(layout, format, row, col, k).byte)] =
              stored[static_cast<size_t>(col - begin)].bits;
        continue;
      }
      if (format.scheme == Scheme::kFloat4) {
        const int32_t exponent = exponent_of(numbers);
        if (exponent > kMaxExponent)
          return invalid_argument("quantize: row {} has a number above 12, too large for mxfp4",
                                  row);
        out.exponents[at] = static_cast<uint8_t>(exponent);
        const float factor = std::ldexp(1.0f, 127 - exponent);
        for (int64_t col = begin; col < end; ++col) {
          const float x = to_float(numbers[static_cast<size_t>(col - begin)]);
          const IntegerPlace place = integer_place(layout, format, row, col, k);
          const int bits = to_e2m1(x * factor);
          out.data[static_cast<size_t>(place.byte)] |= static_cast<uint8_t>(bits << place.shift);
        }
        continue;
      }
      const GroupCodes codes = measure(format, numbers);
      out.scales[at] = codes.scale;
      if (format.zeros) out.zeros[at] = static_cast<uint8_t>(codes.zero);
      if (format.minima) out.minima[at] = codes.minimum;
      for (int64_t col = begin; col < end; ++col) {
        const float x = to_float(numbers[static_cast<size_t>(col - begin)]);
        const float steps =
            codes.scale != 0 ? std::nearbyint((x + codes.minimum) / codes.scale) : 0;
        const int32_t u = std::clamp(static_cast<int32_t>(steps) + codes.zero, 0, top);
        const IntegerPlace place = integer_place(layout, format, row, col, k);
        out.data[static_cast<size_t>(place.byte)] |= static_cast<uint8_t>(u << place.shift);
      }
    }
  return ok();
}

}  // namespace nereid::kernels
