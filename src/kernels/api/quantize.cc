#include "kernels/api/quantize.h"

#include <algorithm>
#include <cmath>

#include "kernels/api/pack.h"

namespace nereid::kernels {
namespace {

struct GroupCodes {
  float scale = 0;
  int32_t zero = 0;
};

// What the group's numbers are divided by.
GroupCodes measure(const WeightFormat& format, std::span<const BF16> group) {
  float smallest = 0, largest = 0;
  for (const BF16 x : group) {
    smallest = std::min(smallest, to_float(x));
    largest = std::max(largest, to_float(x));
  }
  const int32_t zero = format.default_zero();
  if (!format.zeros) return {std::max(largest, -smallest) / static_cast<float>(zero - 1), zero};
  const auto top = static_cast<float>(2 * zero - 1);
  // Divided first: the difference of two bf16 numbers may be too large for a float.
  const float scale = largest / top - smallest / top;
  if (scale == 0) return {0, zero};
  return {scale, std::clamp(static_cast<int32_t>(std::lround(-smallest / scale)), 0, 2 * zero - 1)};
}

}  // namespace

Status quantize(const WeightFormat& format, WeightLayout layout, std::span<const BF16> matrix,
                int64_t k, QuantizedPlanes& out) {
  if (format.is_float() || format.ordered || !format_error(format).empty())
    return invalid_argument("quantize: {} is not a format to round to", text_of(format));
  const auto size = static_cast<int64_t>(matrix.size());
  if (k <= 0 || size == 0 || size % k != 0)
    return invalid_argument("quantize: {} numbers are not rows of {}", size, k);
  const int64_t n = size / k, group_size = format.group_size(k), groups = format.num_groups(k);
  out = {};
  for (const PlaneShape& plane : planes_of(format, layout, n, k)) {
    if (plane.role == PlaneRole::kData) out.data.assign(plane.bytes, 0);
    if (plane.role == PlaneRole::kScales) out.scales.assign(plane.bytes / sizeof(float), 0);
    if (plane.role == PlaneRole::kZeros) out.zeros.assign(plane.bytes, 0);
  }
  const int32_t top = 2 * format.default_zero() - 1;
  for (int64_t row = 0; row < n; ++row)
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t begin = group * group_size, end = std::min(begin + group_size, k);
      const auto numbers =
          matrix.subspan(static_cast<size_t>(row * k + begin), static_cast<size_t>(end - begin));
      for (const BF16 x : numbers)
        if (!std::isfinite(to_float(x)))
          return invalid_argument("quantize: row {} has a number that is not finite", row);
      const GroupCodes codes = measure(format, numbers);
      const auto at = static_cast<size_t>(group_index(layout, row, group, groups));
      out.scales[at] = codes.scale;
      if (format.zeros) out.zeros[at] = static_cast<uint8_t>(codes.zero);
      for (int64_t col = begin; col < end; ++col) {
        const float x = to_float(numbers[static_cast<size_t>(col - begin)]);
        const float steps = codes.scale > 0 ? std::nearbyint(x / codes.scale) : 0;
        const int32_t u = std::clamp(static_cast<int32_t>(steps) + codes.zero, 0, top);
        const IntegerPlace place = integer_place(layout, format, row, col, k);
        out.data[static_cast<size_t>(place.byte)] |= static_cast<uint8_t>(u << place.shift);
      }
    }
  return ok();
}

}  // namespace nereid::kernels
