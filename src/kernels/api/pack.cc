// Packing of weights into panels of 16 rows.
#include "kernels/api/pack.h"

#include <cstring>

namespace nereid::kernels {

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
  auto* out = reinterpret_cast<uint32_t*>(dst.data());  // one element pair each
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
  const auto* src = static_cast<const BF16*>(weight.data);
  for (int64_t row = row_begin; row < row_begin + rows; ++row, dst += weight.k) {
    if (weight.layout == WeightLayout::kRowMajor) {
      std::memcpy(dst, src + row * weight.k, static_cast<size_t>(weight.k) * sizeof(BF16));
      continue;
    }
    for (int64_t col = 0; col < weight.k; ++col) dst[col] = src[panel_index(row, col, weight.k)];
  }
  return ok();
}

}  // namespace nereid::kernels
