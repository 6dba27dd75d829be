// Comparison of test images.
#include "kernels/testing/image.h"

#include <cmath>
#include <cstring>

#include "base/rng.h"
#include "base/round_up.h"

namespace nereid::kernels::testing {
namespace {

constexpr std::byte kPoison{0xff};  // 0xffff.. is NaN as f32 and as bf16, -1 as an integer

}  // namespace

Offset Image::add(size_t bytes_wanted) {
  constexpr size_t kAlignment = 256;
  const Offset offset = bytes.size();
  bytes.resize(round_up(offset + bytes_wanted + kAlignment, kAlignment), kPoison);
  return offset;
}

double cell_value(const Image& image, const Region& region, int64_t row, int64_t col) {
  const Offset at = region.cell(row, col);
  if (region.dtype == DType::kBF16) return to_float(*image.at<BF16>(at));
  if (region.dtype == DType::kI32) return *image.at<int32_t>(at);
  if (region.dtype == DType::kI8) return *image.at<int8_t>(at);
  if (region.dtype == DType::kF8E4M3) return to_float(*image.at<F8E4M3>(at));
  return *image.at<float>(at);
}

Status compare(const Image& got, const Image& want, const Region& region, double operand_epsilon,
               double* worst_fraction) {
  struct Worst {
    int64_t row = -1, col = -1;
    double excess = 1, got = 0, want = 0, tolerance = 0;
  } worst;
  int64_t num_wrong = 0;
  for (int64_t r = 0; r < region.rows; ++r) {
    for (int64_t c = 0; c < region.cols; ++c) {
      const Offset at = region.cell(r, c);
      if (std::memcmp(got.at<char>(at), want.at<char>(at), size_of(region.dtype)) == 0) continue;
      const double g = cell_value(got, region, r, c), w = cell_value(want, region, r, c);
      if (std::isnan(g) && std::isnan(w)) continue;
      const size_t i = static_cast<size_t>(r * region.cols + c);
      double tolerance = region.tolerance.empty() ? 0 : region.tolerance[i];
      if (!region.operand_tolerance.empty())
        tolerance += region.operand_tolerance[i] * operand_epsilon;
      const double error = std::fabs(g - w);
      if (error <= tolerance) {
        if (worst_fraction) *worst_fraction = std::max(*worst_fraction, error / tolerance);
        continue;
      }
      ++num_wrong;
      const double excess = std::isnan(error) || tolerance == 0 ? INFINITY : error / tolerance;
      if (worst.row < 0 || excess > worst.excess) worst = {r, c, excess, g, w, tolerance};
    }
  }
  if (num_wrong == 0) return ok();
  return internal_error(
      "{}[{}, {}] = {:.9g}, want {:.9g}: error {:.3g}, tolerance {:.3g} ({} of {} cells wrong)",
      region.name, worst.row, worst.col, worst.got, worst.want, std::fabs(worst.got - worst.want),
      worst.tolerance, num_wrong, region.rows * region.cols);
}

Status compare_bits(const Image& got, const Image& want, const Region& region) {
  for (int64_t r = 0; r < region.rows; ++r) {
    for (int64_t c = 0; c < region.cols; ++c) {
      const Offset at = region.cell(r, c);
      if (std::memcmp(got.at<char>(at), want.at<char>(at), size_of(region.dtype)) != 0)
        return internal_error("{}[{}, {}]: {:.9g} and {:.9g} differ in bits", region.name, r, c,
                              cell_value(got, region, r, c), cell_value(want, region, r, c));
    }
  }
  return ok();
}

Status compare_rest(const Image& got, const Image& before, const std::vector<Region>& regions) {
  std::vector<bool> written(before.bytes.size(), false);
  for (const Region& region : regions)
    for (int64_t r = 0; r < region.rows; ++r)
      std::fill_n(written.begin() + static_cast<int64_t>(region.cell(r, 0)),
                  region.cols * static_cast<int64_t>(size_of(region.dtype)), true);
  for (size_t i = 0; i < written.size(); ++i)
    if (!written[i] && got.bytes[i] != before.bytes[i])
      return internal_error("byte {} of the image, outside every output, was written", i);
  return ok();
}

std::vector<float> noise(uint64_t seed, int64_t count, float scale) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const std::array<uint32_t, 4> bits = philox(seed, i);
    double sum = 0;
    for (uint32_t b : bits) sum += b * 0x1p-32 - 0.5;
    values[i] = static_cast<float>(sum * 1.7320508) * scale;  // four uniforms: variance 1/3
  }
  return values;
}

std::vector<BF16> noise_bf16(uint64_t seed, int64_t count, float scale) {
  std::vector<BF16> values;
  for (float x : noise(seed, count, scale)) values.push_back(to_bf16(x));
  return values;
}

}  // namespace nereid::kernels::testing
