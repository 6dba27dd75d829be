// WeightLayout::kPanel16: sizes, element positions, packing and unpacking. The layout is described
// beside WeightLayout in ops.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/round_up.h"
#include "base/status.h"
#include "kernels/api/ops.h"

namespace nereid::kernels {

inline constexpr int64_t kPanelRows = 16;
inline constexpr int64_t kPanelStepK = 32;  // k is padded to this: one AMX tile row

constexpr int64_t padded_k(int64_t k) { return round_up(k, kPanelStepK); }
constexpr int64_t num_panels(int64_t n) { return (n + kPanelRows - 1) / kPanelRows; }

// Elements of one panel, and the distance between two panels.
constexpr int64_t panel_elements(int64_t k) { return padded_k(k) * kPanelRows; }

// Element index of (row, col) of a matrix with k columns.
constexpr int64_t panel_index(int64_t row, int64_t col, int64_t k) {
  return row / kPanelRows * panel_elements(k) + col / 2 * (2 * kPanelRows) + row % kPanelRows * 2 +
         col % 2;
}

// Bytes of an [n, k] bf16 matrix in kPanel16.
constexpr size_t panel16_bytes(int64_t n, int64_t k) {
  return static_cast<size_t>(num_panels(n) * panel_elements(k)) * sizeof(BF16);
}

// A row-major bf16 matrix [rows, k], one of those stacked along n (q | k | v, gate | up).
struct RowMajorPart {
  const void* data = nullptr;
  int64_t rows = 0;
};

// Packs the stacked parts, sum(rows) = n, into `dst` of panel16_bytes(n, k) bytes; padding is
// zeroed. InvalidArgument when the destination's size or a dimension is wrong.
Status pack_panel16(std::span<const RowMajorPart> parts, int64_t k, std::span<std::byte> dst);

// The inverse for rows [row_begin, row_begin + rows) of an [n, k] weight of either layout:
// row-major bf16 [rows, k].
Status unpack_rows(const WeightView& weight, int64_t row_begin, int64_t rows, BF16* dst);

}  // namespace nereid::kernels
