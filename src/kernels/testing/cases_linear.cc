// Cases of linear: odd sizes, tails of panels and of k, all layouts and formats, 1 to 70 rows.
#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>

#include "kernels/api/pack.h"
#include "kernels/api/quantize.h"
#include "kernels/ref/ref.h"
#include "kernels/testing/cases.h"

namespace nereid::kernels::testing {
namespace {

struct LinearShape {
  int64_t tokens, n, k;
};

// Dequantised operands.
struct Operands {
  std::vector<BF16> x, weight;
};

// Sum over k of |x w|: the scale of a cell's rounding errors. Kernels that scale sums instead of
// rounding dequantised numbers to bf16: a few standard deviations of k such roundings.
void set_tolerance(const LinearShape& s, const Operands& o, bool fp8_rows, bool scaled_sums,
                   const Image& after, Region& out) {
  std::vector<float> w(o.weight.size());
  for (size_t i = 0; i < w.size(); ++i) w[i] = std::fabs(to_float(o.weight[i]));
  const double factor = sum_error(s.k, fp8_rows);
  for (int64_t m = 0; m < s.tokens; ++m) {
    for (int64_t n = 0; n < s.n; ++n) {
      float norm = 0.01f;
      for (int64_t k = 0; k < s.k; ++k)
        norm += std::fabs(to_float(o.x[m * s.k + k])) * w[n * s.k + k];
      double tolerance = factor * norm;
      if (out.dtype == DType::kBF16)
        tolerance += kStepBF16 * std::fabs(cell_value(after, out, m, n));
      out.tolerance.push_back(static_cast<float>(tolerance));
      if (scaled_sums)
        out.operand_tolerance.push_back(norm *
                                        std::min(1.0f, 8 / std::sqrt(static_cast<float>(s.k))));
    }
  }
}

Case<Linear> make_case(const LinearShape& s, WeightLayout layout, bool has_bias, DType out_type,
                       const WeightFormat& format = {}, DType x_type = DType::kBF16) {
  Case<Linear> result;
  result.name = fmt::format("tokens={} n={} k={} layout={} weight={} bias={} x={} out={}", s.tokens,
                            s.n, s.k, static_cast<int>(layout), text_of(format), has_bias,
                            name_of(x_type), name_of(out_type));
  const uint64_t seed = static_cast<uint64_t>(s.tokens * 1000003 + s.n * 1009 + s.k);
  Operands o = {noise_bf16(seed, s.tokens * s.k), noise_bf16(seed + 1, s.n * s.k, 0.1f)};
  Image& image = result.before;
  // NaN columns behind each row of x, not to be multiplied; rows are 16-byte aligned if k allows.
  const bool scaled = x_type != DType::kBF16;
  const auto x_size = static_cast<int64_t>(size_of(x_type));
  const int64_t unit = 16 / x_size;
  const int64_t x_stride = s.k % unit ? s.k + 1 : s.k + unit, out_stride = s.n + 3;
  const Offset x = image.add(static_cast<size_t>(s.tokens * x_stride * x_size));
  const int64_t scales_stride = 1 + s.tokens % 2;
  const Offset scales = image.add(static_cast<size_t>(scales_stride * s.tokens) * sizeof(float));
  for (int64_t m = 0; m < s.tokens; ++m) {
    const auto row = std::span(o.x).subspan(static_cast<size_t>(m * s.k), static_cast<size_t>(s.k));
    float& scale = image.at<float>(scales)[scales_stride * m];
    if (x_type == DType::kF8E4M3)
      store_scaled_row(row, image.at<F8E4M3>(x) + m * x_stride, scale);
    else if (x_type == DType::kI8)
      store_scaled_row(row, image.at<int8_t>(x) + m * x_stride, scale);
    else
      std::copy_n(&o.x[m * s.k], s.k, image.at<BF16>(x) + m * x_stride);
  }
  const StoredWeight weight = add_weight(image, o.weight, {nullptr, layout, s.n, s.k, format});
  const Offset bias = image.add(noise_bf16(seed + 2, s.n));
  const Offset out = image.add(static_cast<size_t>(s.tokens * out_stride) * size_of(out_type));

  result.tokens = s.tokens;
  result.args = [=](std::byte* base, int64_t begin, int64_t count) {
    Linear a;
    a.x = {base + x + begin * x_stride * x_size, x_type, count, s.k, x_stride};
    if (scaled)
      a.scales = {base + scales + begin * scales_stride * 4, DType::kF32, count, 1, scales_stride};
    a.weight = weight.at(base);
    if (has_bias) a.bias = {base + bias, WeightLayout::kRowMajor, 1, s.n};
    a.out = {base + out + begin * out_stride * static_cast<int64_t>(size_of(out_type)), out_type,
             count, s.n, out_stride};
    return a;
  };
  result.after = image;
  reference(result.args(result.after.bytes.data(), 0, s.tokens));
  result.outputs = {{"out", out, out_type, s.tokens, s.n, out_stride, {}, {}}};
  set_tolerance(s, o, x_type == DType::kF8E4M3,
                !format.is_float() && format != kFp8PerRow && x_type == DType::kBF16, result.after,
                result.outputs[0]);
  if (s.tokens > 1)
    for (int64_t size : {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16, 17, 31, 32, 33, 48, 65})
      if (size < s.tokens) result.splits.push_back(pieces(s.tokens, size));
  return result;
}

// Integers: odd sizes, several groups with a short last one, with zero points, minima, or neither.
void add_integer_cases(std::vector<Case<Linear>>& all) {
  WeightFormat int4_zeros = kInt4Groups, int8_groups = kInt8PerRow;
  int4_zeros.zeros = true;
  int8_groups.group = 32, int8_groups.zeros = true;
  WeightFormat int4_minima = kInt4Groups, int8_minima = kInt8PerRow;
  int4_minima.group = 32, int4_minima.minima = true;
  int8_minima.group = 16, int8_minima.minima = true;
  for (const WeightLayout layout : {WeightLayout::kPanel16, WeightLayout::kRowMajor})
    for (const WeightFormat& format :
         {kInt8PerRow, kInt4Groups, int4_zeros, int8_groups, int4_minima, int8_minima}) {
      for (const LinearShape& s :
           {LinearShape{1, 1, 1}, LinearShape{2, 17, 33}, LinearShape{13, 64, 257},
            LinearShape{33, 200, 160}, LinearShape{70, 112, 384}})
        all.push_back(
            make_case(s, layout, s.n % 3 != 0, s.k % 2 ? DType::kBF16 : DType::kF32, format));
      all.push_back(make_case({4, 300, 1000}, layout, true, DType::kF32, format));
    }
  // Groups of several steps, more than kernels sum at a time, and groups that end within a step.
  WeightFormat int4_wide = kInt4Groups, int8_wide = kInt8PerRow, int4_odd = kInt4Groups;
  int4_wide.group = 320, int4_odd.group = 80;
  int8_wide.group = 64, int8_wide.zeros = true;
  for (const WeightFormat& format : {int4_wide, int8_wide, int4_odd, kInt8PerRow, kInt8Both})
    for (const LinearShape& s : {LinearShape{16, 70, 700}, LinearShape{67, 112, 1000}})
      all.push_back(make_case(s, WeightLayout::kPanel16, true, DType::kF32, format,
                              scales_sums(format) ? DType::kI8 : DType::kBF16));
  // More columns than kernels unpack at a time for many rows.
  WeightFormat int4_long = kInt4Groups;
  int4_long.group = 2176, int4_long.zeros = true;
  for (const WeightFormat& format :
       {kInt8PerRow, int4_zeros, int4_wide, int4_long, int8_minima, kFp8PerRow, kFp8Groups})
    all.push_back(make_case({40, 40, 2600}, WeightLayout::kPanel16, true, DType::kF32, format));
  all.push_back(
      make_case({40, 40, 4200}, WeightLayout::kPanel16, true, DType::kF32, kInt8Both, DType::kI8));
  // For 16-byte loads: several steps of k and a tail, groups within one load.
  WeightFormat int4_small = kInt4Groups, int4_row = kInt4Groups, int4_low = kInt4Groups;
  int4_small.group = 32, int4_small.zeros = true;
  int4_low.group = 32, int4_low.minima = true;
  int4_row.group = 0;
  for (const WeightFormat& format :
       {kInt8PerRow, kInt4Groups, int4_zeros, int8_groups, int4_small, int4_low, int4_row}) {
    all.push_back(make_case({1, 40, 4128}, WeightLayout::kRowMajor, true, DType::kBF16, format));
    all.push_back(make_case({2, 4500, 288}, WeightLayout::kRowMajor, false, DType::kF32, format));
    all.push_back(make_case({3, 700, 2208}, WeightLayout::kRowMajor, true, DType::kF32, format));
    all.push_back(make_case({40, 700, 1056}, WeightLayout::kRowMajor, false, DType::kBF16, format));
  }
}

// fp8, also with f8e4m3 rows: 16- and 32-byte loads, tails, and the splits among units below.
void add_fp8_cases(std::vector<Case<Linear>>& all) {
  for (const WeightLayout layout : {WeightLayout::kPanel16, WeightLayout::kRowMajor})
    for (const DType x : {DType::kBF16, DType::kF8E4M3})
      for (const LinearShape& s :
           {LinearShape{1, 1, 1}, LinearShape{2, 17, 33}, LinearShape{13, 64, 257},
            LinearShape{4, 300, 1008}, LinearShape{33, 200, 160}, LinearShape{70, 112, 384}})
        all.push_back(make_case(s, layout, s.n % 3 != 0, s.k % 2 ? DType::kBF16 : DType::kF32,
                                kFp8PerRow, x));
  WeightFormat narrow = kFp8Groups;
  narrow.group = 32;
  for (const WeightLayout layout : {WeightLayout::kPanel16, WeightLayout::kRowMajor})
    for (const WeightFormat& format : {kFp8Groups, narrow})
      for (const LinearShape& s :
           {LinearShape{1, 1, 1}, LinearShape{2, 17, 33}, LinearShape{13, 64, 257},
            LinearShape{4, 300, 1008}, LinearShape{33, 200, 160}, LinearShape{70, 112, 384}})
        all.push_back(
            make_case(s, layout, s.n % 3 != 0, s.k % 2 ? DType::kBF16 : DType::kF32, format));
  for (const LinearShape& s :
       {LinearShape{1, 40, 4112}, LinearShape{2, 4500, 272}, LinearShape{3, 700, 2064},
        LinearShape{8, 700, 1008}, LinearShape{12, 8960, 144}, LinearShape{40, 704, 1008},
        LinearShape{20, 17008, 80}, LinearShape{100, 704, 1024}})
    all.push_back(make_case(s, WeightLayout::kRowMajor, s.tokens < 20, DType::kF32, kFp8PerRow,
                            DType::kF8E4M3));
}

// i8 rows: tails of two and four columns, row counts of all kernel variants; bf16 rows likewise.
void add_byte_cases(std::vector<Case<Linear>>& all) {
  for (const WeightLayout layout : {WeightLayout::kPanel16, WeightLayout::kRowMajor})
    for (const LinearShape& s :
         {LinearShape{1, 1, 1}, LinearShape{2, 17, 33}, LinearShape{3, 40, 66},
          LinearShape{13, 64, 259}, LinearShape{4, 300, 1008}, LinearShape{33, 200, 160},
          LinearShape{70, 112, 384}, LinearShape{5, 33, 4100}})
      for (const DType x : {DType::kI8, DType::kBF16})
        all.push_back(
            make_case(s, layout, s.n % 3 != 0, s.k % 2 ? DType::kBF16 : DType::kF32, kInt8Both, x));
}

std::vector<Case<Linear>> make_cases() {
  std::vector<Case<Linear>> all;
  for (const WeightLayout layout : {WeightLayout::kPanel16, WeightLayout::kRowMajor}) {
    for (const LinearShape& s :
         {LinearShape{1, 1, 1}, LinearShape{1, 16, 32}, LinearShape{2, 17, 33},
          LinearShape{3, 40, 65}, LinearShape{7, 130, 100}, LinearShape{13, 64, 257},
          LinearShape{70, 112, 96}, LinearShape{33, 200, 160}, LinearShape{1, 512, 256},
          LinearShape{129, 48, 64}})
      all.push_back(make_case(s, layout, s.n % 3 != 0, s.k % 2 ? DType::kBF16 : DType::kF32));
    all.push_back(make_case({5, 96, 2048}, layout, false, DType::kF32));
    all.push_back(make_case({70, 64, 768}, layout, true, DType::kBF16));
    all.push_back(make_case({1, 300, 1536}, layout, false, DType::kBF16));
  }
  all.push_back(make_case({600, 80, 64}, WeightLayout::kPanel16, false, DType::kF32));
  // Outputs whose rows begin at cache lines, for stores past the caches; several blocks of columns.
  for (const WeightFormat& format : {WeightFormat{}, kInt8PerRow, kInt4Groups})
    for (const LinearShape& s : {LinearShape{300, 125, 96}, LinearShape{45, 93, 2600}})
      all.push_back(make_case(s, WeightLayout::kPanel16, s.tokens < 100, DType::kF32, format));
  // For kernels that split the weight among units: whole tiles, partial tiles, and a case in which
  // a GPU block needs the default dynamic shared memory limit plus static memory.
  for (const LinearShape& s :
       {LinearShape{8, 700, 1000}, LinearShape{12, 8960, 136}, LinearShape{40, 700, 1000},
        LinearShape{20, 17000, 72}, LinearShape{40, 300, 4096}, LinearShape{33, 4096, 256}})
    all.push_back(make_case(s, WeightLayout::kRowMajor, s.tokens < 20, DType::kF32));
  add_integer_cases(all);
  add_fp8_cases(all);
  add_byte_cases(all);
  return all;
}

}  // namespace

StoredWeight add_weight(Image& image, std::vector<BF16>& matrix, const WeightView& shape) {
  QuantizedPlanes all, planes;
  const size_t elements = matrix.size() / static_cast<size_t>(shape.experts);
  for (size_t begin = 0; begin < matrix.size(); begin += elements) {
    const std::span<BF16> one = std::span(matrix).subspan(begin, elements);
    if (!shape.format.is_float()) {
      NEREID_CHECK(quantize(shape.format, shape.layout, one, shape.k, planes).ok());
      const WeightView view = planes.view(shape.format, shape.layout, shape.n, shape.k);
      NEREID_CHECK(unpack_rows(view, 0, shape.n, one.data()).ok());
    } else if (shape.layout == WeightLayout::kPanel16) {
      const RowMajorPart part{one.data(), shape.n};
      planes.data.resize(panel16_bytes(shape.n, shape.k));
      NEREID_CHECK(
          pack_panel16({&part, 1}, shape.k, std::as_writable_bytes(std::span(planes.data))).ok());
    } else {
      planes.data.resize(elements * sizeof(BF16));
      std::memcpy(planes.data.data(), one.data(), planes.data.size());
    }
    all.data.insert(all.data.end(), planes.data.begin(), planes.data.end());
    all.scales.insert(all.scales.end(), planes.scales.begin(), planes.scales.end());
    all.exponents.insert(all.exponents.end(), planes.exponents.begin(), planes.exponents.end());
    all.zeros.insert(all.zeros.end(), planes.zeros.begin(), planes.zeros.end());
    all.minima.insert(all.minima.end(), planes.minima.begin(), planes.minima.end());
  }
  return {shape,
          image.add(all.data),
          image.add(all.scales),
          image.add(all.exponents),
          image.add(all.zeros),
          image.add(all.minima)};
}

template <class T>
void store_scaled_row(std::span<BF16> row, T* stored, float& scale) {
  scale = quantize_row(row, stored);
  const auto number = [](T x) {
    if constexpr (std::is_same_v<T, int8_t>)
      return static_cast<float>(x);
    else
      return to_float(x);
  };
  for (size_t i = 0; i < row.size(); ++i) row[i] = to_bf16(scale * number(stored[i]));
}
template void store_scaled_row(std::span<BF16> row, F8E4M3* stored, float& scale);
template void store_scaled_row(std::span<BF16> row, int8_t* stored, float& scale);

Split pieces(int64_t tokens, int64_t size) {
  Split split;
  for (int64_t begin = 0; begin < tokens; begin += size)
    split.emplace_back(begin, std::min(size, tokens - begin));
  return split;
}

template <>
const std::vector<Case<Linear>>& cases<Linear>() {
  static const std::vector<Case<Linear>> all = make_cases();
  return all;
}

}  // namespace nereid::kernels::testing
