// Planes of weights, and packing into panels of 16 rows.
#include "kernels/api/pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace nereid::kernels {

std::string_view format_error(const WeightFormat& f) {
  if (f.is_float()) return f == WeightFormat{} ? "" : "a float format has no properties";
  if (f.scheme == Scheme::kFloat8) {
    WeightFormat groups = kFp8Groups;
    groups.group = f.group;
    if (f != kFp8PerRow && f != groups)
      return "fp8 has f32 scales, and inputs of f8e4m3 where there is one for each row";
    return f != kFp8PerRow && (f.group <= 0 || f.group % kGroupUnit != 0)
               ? "a group is a multiple of 16 columns"
               : "";
  }
  if (f.scheme == Scheme::kFloat4) return f == kMxfp4 ? "" : "4-bit floats are MXFP4";
  if (f.scheme == Scheme::kFloat32) return f == kFloat32 ? "" : "float32 has no properties";
  if (f.bits != 4 && f.bits != 8) return "integers have 4 or 8 bits";
  if (f.inputs != DType::kBF16 && f != kInt8Both)
    return "inputs of i8 go with integers of 8 bits and one scale for each row";
  if (f.group < 0 || f.group % kGroupUnit != 0) return "a group is a multiple of 16 columns";
  if (f.scales != DType::kF32) return "scales are f32";
  if (f.zeros && f.minima) return "a group has a zero point or a minimum, not both";
  return "";
}

std::string text_of(const WeightFormat& f) {
  if (f.is_float()) return "bf16";
  if (f.scheme == Scheme::kFloat32) return "f32";
  if (f.scheme == Scheme::kFloat4) return "mxfp4";
  std::string text = f.scheme == Scheme::kFloat8 ? "fp8" : fmt::format("int{}", f.bits);
  if (f.inputs == DType::kI8) text += " both";
  if (f.group > 0) text += fmt::format(" in groups of {}", f.group);
  if (f.zeros) text += " with zero points";
  if (f.minima) text += " with minima";
  if (f.ordered) text += " with ordered columns";
  return text;
}

std::vector<PlaneShape> planes_of(const WeightFormat& format, WeightLayout layout, int64_t n,
                                  int64_t k, int64_t experts) {
  if (experts > 1) {
    std::vector<PlaneShape> planes = planes_of(format, layout, n, k);
    for (PlaneShape& plane : planes) {
      plane.rows *= experts;
      plane.bytes *= static_cast<uint64_t>(experts);
    }
    return planes;
  }
  const bool panels = layout == WeightLayout::kPanel16;
  if (format.is_float()) {
    const auto bytes = panels ? panel16_bytes(n, k) : static_cast<uint64_t>(n * k) * sizeof(BF16);
    return {{PlaneRole::kData, DType::kBF16, n, k, bytes}};
  }
  if (format.scheme == Scheme::kFloat32)
    return {{PlaneRole::kData, DType::kF32, n, k, static_cast<uint64_t>(n * k) * sizeof(float)}};
  const int64_t row_bytes = format.row_bytes(k), groups = format.num_groups(k);
  const bool fragments = layout == WeightLayout::kFragments;
  const int64_t rows = panels ? num_panels(n) * kPanelRows : n;
  const int64_t blocks = fragment_blocks(n, k) * kFragmentRows * kFragmentColumns;  // numbers
  const int64_t data = fragments ? blocks * format.bits / 8
                       : panels  ? num_panels(n) * integer_panel_bytes(k, format.bits)
                                 : n * row_bytes;
  std::vector<PlaneShape> planes = {
      {PlaneRole::kData, DType::kU8, n, row_bytes, static_cast<uint64_t>(data)}};
  const auto add = [&](PlaneRole role, DType type, int64_t shown_rows, int64_t cols,
                       int64_t stored_rows) {
    planes.push_back(
        {role, type, shown_rows, cols, static_cast<uint64_t>(stored_rows * cols) * size_of(type)});
  };
  add(PlaneRole::kScales, format.scales, n, groups, rows);
  if (fragments) planes.back().bytes = static_cast<uint64_t>(blocks / kFragmentPiece);
  if (format.zeros) add(PlaneRole::kZeros, DType::kU8, n, groups, rows);
  if (format.minima) add(PlaneRole::kMinima, DType::kF32, n, groups, rows);
  if (format.ordered) add(PlaneRole::kIndex, DType::kI32, 1, k, 1);
  return planes;
}

uint64_t stored_bytes(const WeightView& weight) {
  uint64_t bytes = 0;
  for (const PlaneShape& plane :
       planes_of(weight.format, weight.layout, weight.n, weight.k, weight.experts))
    bytes += plane.bytes;
  return bytes;
}

WeightView expert_of(WeightView w, int64_t expert) {
  w.experts = 1;
  for (const PlaneShape& plane : planes_of(w.format, w.layout, w.n, w.k)) {
    const auto skipped = expert * static_cast<int64_t>(plane.bytes);
    if (plane.role == PlaneRole::kData) w.data = w.as_bytes() + skipped;
    if (plane.role == PlaneRole::kScales && plane.type == DType::kU8) w.exponents += skipped;
    if (plane.role == PlaneRole::kScales && plane.type == DType::kF32)
      w.scales += skipped / int64_t{sizeof(float)};
    if (plane.role == PlaneRole::kZeros) w.zeros += skipped;
    if (plane.role == PlaneRole::kMinima) w.minima += skipped / int64_t{sizeof(float)};
    if (plane.role == PlaneRole::kIndex) w.index += skipped / int64_t{sizeof(int32_t)};
  }
  return w;
}

IntegerPlace integer_place(WeightLayout layout, const WeightFormat& format, int64_t row,
                           int64_t col, int64_t k) {
  const int32_t bits = format.bits;
  const int64_t unit = bits == 4 ? col / 2 : col;  // bytes along k
  const int32_t shift = bits == 4 && col % 2 != 0 ? 4 : 0;
  if (layout == WeightLayout::kFragments) {
    // Runs of eight rows of half a block: 32 lanes with four words each, one for each piece.
    constexpr int64_t kHalf = kFragmentColumns / 2, kRunBytes = 8 * kHalf / 2;
    const int64_t blocks = (k + kFragmentColumns - 1) / kFragmentColumns;
    const int64_t block = row / kFragmentRows * blocks + col / kFragmentColumns;
    const int64_t half = block * 2 + col % kFragmentColumns / kHalf;
    const int64_t run = half * (kFragmentRows / 8) + row % kFragmentRows / 8;
    const int64_t lane = row % 8 * 4 + col % 8 / 2, piece = col % kHalf / kFragmentPiece;
    const int64_t nibble = col % kFragmentPiece / 8 + col % 2 * 4;
    return {run * kRunBytes + lane * 16 + piece * 4 + nibble / 2,
            static_cast<int32_t>(nibble % 2 * 4)};
  }
  if (layout == WeightLayout::kRowMajor) return {row * format.row_bytes(k) + unit, shift};
  return {row / kPanelRows * integer_panel_bytes(k, bits) + unit * kPanelRows + row % kPanelRows,
          shift};
}

float factor_at(const WeightView& w, int64_t row, int64_t col) {
  if (w.format.is_float())
    return to_float(w.as_bf16()[w.layout == WeightLayout::kPanel16 ? panel_index(row, col, w.k)
                                                                   : row * w.k + col]);
  if (w.format.scheme == Scheme::kFloat32) return w.as_f32()[row * w.k + col];
  const IntegerPlace place = integer_place(w.layout, w.format, row, col, w.k);
  const uint8_t byte = w.as_bytes()[place.byte];
  const bool is_fp8 = w.format.scheme == Scheme::kFloat8;
  if (is_fp8 && scales_sums(w.format)) return to_float(F8E4M3{byte});
  const int32_t u = byte >> place.shift & ((1 << w.format.bits) - 1);
  const int64_t groups = w.format.num_groups(w.k);
  // The index is untrusted data: clamped to the row's groups.
  const int64_t group = w.format.ordered ? std::clamp<int64_t>(w.index[col], 0, groups - 1)
                                         : col / w.format.group_size(w.k);
  const int64_t at = group_index(w.layout, row, group, groups);
  if (is_fp8) return to_float(to_bf16(w.scales[at] * to_float(F8E4M3{byte})));
  if (w.format.minima)  // rounded once to f32, then to bf16
    return to_float(to_bf16(std::fma(w.scales[at], static_cast<float>(u), -w.minima[at])));
  if (w.format.scheme == Scheme::kFloat4)
    return std::ldexp(from_e2m1(static_cast<uint8_t>(u)), w.exponents[at] - 127);
  const int32_t zero = w.format.zeros ? w.zeros[at] : w.format.default_zero();
  if (scales_sums(w.format)) return static_cast<float>(u - zero);
  return to_float(to_bf16(w.scales[at] * static_cast<float>(u - zero)));
}

float row_scale(const WeightView& w, int64_t row) {
  return scales_sums(w.format) ? w.scales[row] : 1;
}

float weight_at(const WeightView& w, int64_t row, int64_t col) {
  return row_scale(w, row) * factor_at(w, row, col);
}

float from_e2m1(uint8_t bits) {
  constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return bits & 8 ? -kValues[bits & 7] : kValues[bits & 7];
}

std::string_view layout_error(WeightLayout layout, const WeightFormat& format, int64_t k) {
  if (format.scheme == Scheme::kFloat4 && k % kMxfp4.group != 0)
    return "rows of mxfp4 are whole groups of 32 columns";
  if (layout == WeightLayout::kPanel16 && format.scheme == Scheme::kFloat4)
    return "mxfp4 is not stored in panels";
  if (layout == WeightLayout::kFragments && format.scheme != Scheme::kFloat4)
    return "fragments are of mxfp4";
  return "";
}

Status pack_panel16(std::span<const RowMajorPart> parts, int64_t k, std::span<std::byte> dst) {
  int64_t n = 0;
  for (const RowMajorPart& part : parts) {
    if (part.rows < 0 || (part.rows > 0 && !part.data))
      return invalid_argument("pack: part with {} rows and {} data", part.rows,
                              part.data ? "some" : "no");
    n += part.rows;
  }
  if (k <= 0 || n <= 0) return invalid_argument("pack: empty matrix [{}, {}]", n, k);
  if (dst.size() != panel16_bytes(n, k))
    return invalid_argument("pack: destination has {} bytes, [{}, {}] needs {}", dst.size(), n, k,
                            panel16_bytes(n, k));
  auto* out = reinterpret_cast<uint32_t*>(dst.data());  // one pair of elements each
  const int64_t pairs = padded_k(k) / 2;
  std::memset(out + (num_panels(n) - 1) * pairs * kPanelRows, 0,
              static_cast<size_t>(pairs * kPanelRows) * 4);
  int64_t row = 0;
  for (const RowMajorPart& part : parts) {
    const auto* src = static_cast<const BF16*>(part.data);
    for (int64_t r = 0; r < part.rows; ++r, ++row, src += k) {
      uint32_t* lane = out + row / kPanelRows * pairs * kPanelRows + row % kPanelRows;
      for (int64_t pair = 0; pair < pairs; ++pair) {
        const uint32_t low = 2 * pair < k ? src[2 * pair].bits : 0;
        const uint32_t high = 2 * pair + 1 < k ? src[2 * pair + 1].bits : 0;
        lane[pair * kPanelRows] = low | high << 16;
      }
    }
  }
  return ok();
}

Status unpack_rows(const WeightView& weight, int64_t row_begin, int64_t rows, BF16* dst) {
  if (!weight.data || row_begin < 0 || rows < 0 || row_begin + rows > weight.n)
    return invalid_argument("unpack: rows [{}, {}) of a weight with {}", row_begin,
                            row_begin + rows, weight.data ? weight.n : 0);
  for (int64_t row = row_begin; row < row_begin + rows; ++row, dst += weight.k)
    for (int64_t col = 0; col < weight.k; ++col) dst[col] = to_bf16(weight_at(weight, row, col));
  return ok();
}

}  // namespace nereid::kernels
