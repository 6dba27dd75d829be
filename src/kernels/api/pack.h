// Planes of weights: sizes, element positions, packing, unpacking. Layouts: WeightLayout in op.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/round_up.h"
#include "base/status.h"
#include "kernels/api/ops.h"

namespace nereid::kernels {

inline constexpr int64_t kPanelRows = 16;
inline constexpr int64_t kPanelStepK = 32;  // padding of k: one AMX tile row

constexpr int64_t padded_k(int64_t k) { return round_up(k, kPanelStepK); }
constexpr int64_t num_panels(int64_t n) { return (n + kPanelRows - 1) / kPanelRows; }

// Elements of a panel = distance of panels.
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

// Kind of a plane.
enum class PlaneRole : uint8_t { kData, kScales, kZeros, kMinima, kIndex };
inline std::span<const std::string_view> names_of(PlaneRole) {
  static constexpr std::string_view kNames[] = {"data", "scales", "zeros", "minima", "index"};
  return kNames;
}

// A matrix of `type`, or of bytes with several numbers each.
struct PlaneShape {
  PlaneRole role = PlaneRole::kData;
  DType type = DType::kBF16;
  int64_t rows = 0, cols = 0;
  uint64_t bytes = 0;  // stored, layout padding included

  bool operator==(const PlaneShape&) const = default;
};

// The planes of a valid format's [n, k] weight, data first; each repeated per expert.
std::vector<PlaneShape> planes_of(const WeightFormat& format, WeightLayout layout, int64_t n,
                                  int64_t k, int64_t experts = 1);
// Bytes of all planes.
uint64_t stored_bytes(const WeightView& weight);

// Rows of which a layout stores whole units.
constexpr int64_t unit_rows(WeightLayout layout) {
  return layout == WeightLayout::kFragments ? kFragmentRows : kPanelRows;
}

// Bytes of one panel of integers.
constexpr int64_t integer_panel_bytes(int64_t k, int32_t bits) {
  return panel_elements(k) * bits / 8;
}

// Position of (row, col) in a plane of integers or 4-bit floats: byte, and shift for 4 bits.
struct IntegerPlace {
  int64_t byte = 0;
  int32_t shift = 0;
};
IntegerPlace integer_place(WeightLayout layout, const WeightFormat& format, int64_t row,
                           int64_t col, int64_t k);
// Index of a scale, exponent, zero point or minimum.
constexpr int64_t group_index(WeightLayout layout, int64_t row, int64_t group, int64_t groups) {
  if (layout == WeightLayout::kFragments) {
    constexpr int64_t kGroups = kFragmentColumns / kFragmentPiece;
    const int64_t block =
        row / kFragmentRows * ((groups + kGroups - 1) / kGroups) + group / kGroups;
    return (block * kFragmentRows + row % kFragmentRows) * kGroups + group % kGroups;
  }
  if (layout == WeightLayout::kRowMajor) return row * groups + group;
  return (row / kPanelRows * groups + group) * kPanelRows + row % kPanelRows;
}

// factor_at(): the bf16 factor of (row, col) in a product; row_scale(): that of the row's sum.
float factor_at(const WeightView& weight, int64_t row, int64_t col);
float row_scale(const WeightView& weight, int64_t row);
// Value of (row, col): factor_at() * row_scale().
float weight_at(const WeightView& weight, int64_t row, int64_t col);

// The matrix (or vector) of one expert.
WeightView expert_of(WeightView weight, int64_t expert);

// A row-major bf16 matrix [rows, k], stacked along n with others (q | k | v, gate | up).
struct RowMajorPart {
  const void* data = nullptr;
  int64_t rows = 0;
};

// Packs stacked parts, sum(rows) = n, into `dst` of panel16_bytes(n, k) bytes, zero-padded.
// InvalidArgument: wrong size or dimension.
Status pack_panel16(std::span<const RowMajorPart> parts, int64_t k, std::span<std::byte> dst);

// Value of an e2m1 number: sign, 2 exponent bits, 1 mantissa bit (OCP Microscaling Formats 1.0).
float from_e2m1(uint8_t bits);

// Dequantises rows [row_begin, row_begin + rows) of an [n, k] weight to bf16, row-major [rows, k].
Status unpack_rows(const WeightView& weight, int64_t row_begin, int64_t rows, BF16* dst);

}  // namespace nereid::kernels
