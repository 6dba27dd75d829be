#include "io/quantized_tensors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "io/quantized_parts.h"

namespace nereid::io {
namespace {

// Zero point of `bits`-bit integers shifted by `offset`; -1: none, or not integral in f16.
int32_t zero_of_offset(float scale, float offset, int32_t bits) {
  const int32_t middle = 1 << (bits - 1);
  const float steps = offset == 0 ? 0 : offset / scale, whole = std::nearbyint(steps);
  if (!(std::fabs(steps - whole) < 0.25f) || whole > static_cast<float>(middle) ||
      whole < static_cast<float>(-middle))
    return -1;
  return middle - static_cast<int32_t>(whole);
}

class PackedIntegers final : public EncodingOf<PackedIntegers> {
 public:
  PackedIntegers(const PackedTensors& parts, const PackedLayout& layout, int64_t n, int64_t k)
      : layout_(layout),
        n_(n),
        k_(k),
        group_(layout.group > 0 ? std::min(layout.group, k) : k),
        groups_((k + group_ - 1) / group_),
        by_rows_(parts.offsets == nullptr && layout.packing >= Packing::kRows),
        offsets_(numbers_in(parts.offsets)),
        data_(parts.data->data.data()),
        scales_(numbers_in(parts.scales)),
        zeros_(parts.zeros ? parts.zeros->data.data() : nullptr),
        index_(parts.index ? parts.index->data.data() : nullptr),
        inputs_(factors_of(parts.inputs)) {
    bool ordered = false;
    for (int64_t col = 0; index_ && col < k; ++col)
      ordered |= load_at<int32_t>(index_, col) != col / group_;
    if (!ordered) index_ = nullptr;
    format_ = {.scheme = kernels::Scheme::kInteger,
               .bits = layout.bits,
               .group = groups_ > 1 ? static_cast<int32_t>(group_) : 0};
    int32_t largest = 0;
    for (int64_t row = 0; (zeros_ || offsets_.data) && row < n; ++row)
      for (int64_t g = 0; g < groups_; ++g) {
        largest = std::max(largest, zero(row, g));
        format_.zeros |= zero(row, g) != middle();
      }
    has_format_ = (layout.bits == 4 || layout.bits == 8) && !index_ && !inputs_.data &&
                  largest <= std::numeric_limits<uint8_t>::max() &&
                  group_ <= std::numeric_limits<int32_t>::max() &&
                  (groups_ == 1 || group_ % kernels::kGroupUnit == 0);
  }

  float at(int64_t row, int64_t col) const {
    const int64_t g = index_ ? load_at<int32_t>(index_, col) : col / group_;
    const float value =
        scale(row, g) * static_cast<float>(static_cast<int32_t>(code(row, col)) - zero(row, g));
    return inputs_.data ? value * inputs_[col] : value;
  }
  std::optional<kernels::WeightFormat> format() const override {
    return has_format_ ? std::optional(format_) : std::nullopt;
  }
  uint8_t code(int64_t row, int64_t col) const override {
    if (layout_.packing == Packing::kBytes) return load_at<uint8_t>(data_, row * k_ + col) ^ 0x80u;
    return static_cast<uint8_t>(layout_.packing == Packing::kPairsOfRows ? pair(row, col)
                                                                         : field(row, col));
  }
  CodeGroup group(int64_t row, int64_t g) const override { return {scale(row, g), zero(row, g)}; }

 private:
  int32_t middle() const { return 1 << (layout_.bits - 1); }
  // Signed 4-bit numbers become unsigned.
  int32_t pair(int64_t row, int64_t col) const {
    const auto byte = load_at<uint8_t>(data_, row / 2 * k_ + col);
    return ((byte >> (row % 2 * 4)) & 15) ^ 8;
  }
  int32_t bits_of(const std::byte* words, int64_t word, int64_t place) const {
    return static_cast<int32_t>(load_at<uint32_t>(words, word) >> (place * layout_.bits) &
                                ((1u << layout_.bits) - 1));
  }
  int32_t field(int64_t row, int64_t col) const {
    const int64_t per = kWordBits / layout_.bits;
    if (layout_.packing == Packing::kInputs) return bits_of(data_, col / per * n_ + row, col % per);
    if (layout_.packing == Packing::kOutputs)
      return bits_of(data_, col * (n_ / per) + row / per, place_of_output(row));
    return bits_of(data_, row * (k_ / per) + col / per, col % per);
  }
  static int64_t place_of_output(int64_t row) { return row % 8 / 2 + row % 2 * 4; }
  float scale(int64_t row, int64_t g) const {
    return scales_[by_rows_ ? row * groups_ + g : g * n_ + row];
  }
  int32_t zero(int64_t row, int64_t g) const {
    if (offsets_.data) return zero_of_offset(scale(row, g), offsets_[g * n_ + row], layout_.bits);
    if (!zeros_) return middle();
    const int64_t per = kWordBits / layout_.bits;
    const int64_t word =
        layout_.packing == Packing::kRows ? row / per * groups_ + g : g * (n_ / per) + row / per;
    const int64_t place = layout_.packing == Packing::kOutputs ? place_of_output(row) : row % per;
    return bits_of(zeros_, word, place) + layout_.zero_shift;
  }

  const PackedLayout layout_;
  const int64_t n_, k_, group_, groups_;
  const bool by_rows_;  // order of scales
  const NumberView offsets_;
  const std::byte* data_;
  const NumberView scales_;
  const std::byte* zeros_;
  const std::byte* index_;
  const NumberView inputs_;
  kernels::WeightFormat format_;
  bool has_format_ = false;
};

class ScaledBytes final : public EncodingOf<ScaledBytes> {
 public:
  ScaledBytes(const ScaledTensors& parts, const ScaledLayout& layout, int64_t k, int64_t cols)
      : layout_(layout),
        k_(k),
        cols_(cols),
        data_(parts.data->data.data()),
        scales_(numbers_in(parts.scales)),
        zeros_(parts.zeros ? parts.zeros->data.data() : nullptr),
        inputs_(factors_of(parts.inputs)),
        is_f8_(parts.data->type == DType::kF8E4M3) {
    bool zeros = false;
    for (int64_t i = 0; zeros_ && i < count_of(*parts.zeros); ++i)
      zeros |= load_at<int8_t>(zeros_, i) != 0;
    const bool fits = cols == 1 || (layout.block_cols <= std::numeric_limits<int32_t>::max() &&
                                    layout.block_cols % kernels::kGroupUnit == 0);
    if (is_f8_) {
      format_ = cols == 1 ? kernels::kFp8PerRow : kernels::kFp8Groups;
      if (cols > 1) format_.group = static_cast<int32_t>(layout.block_cols);
      has_format_ = fits && !zeros;
    } else {
      format_ = kernels::kInt8PerRow;
      format_.group = cols == 1 ? 0 : static_cast<int32_t>(layout.block_cols);
      format_.zeros = zeros;
      has_format_ = fits;
      if (layout.byte_inputs && cols == 1 && !zeros) format_ = kernels::kInt8Both;
    }
    has_format_ &= !inputs_.data;
  }

  float at(int64_t row, int64_t col) const {
    const int64_t i = block(row, col / layout_.block_cols);
    const float value = is_f8_ ? to_float(load_at<F8E4M3>(data_, row * k_ + col))
                               : static_cast<float>(load_at<int8_t>(data_, row * k_ + col) -
                                                    (zeros_ ? load_at<int8_t>(zeros_, i) : 0));
    const float scaled = value * (scales_[i] * layout_.factor);
    if (!inputs_.data) return scaled;
    return layout_.divides ? scaled / inputs_[col] : scaled * inputs_[col];
  }
  std::optional<kernels::WeightFormat> format() const override {
    return has_format_ ? std::optional(format_) : std::nullopt;
  }
  uint8_t code(int64_t row, int64_t col) const override {
    const auto byte = load_at<uint8_t>(data_, row * k_ + col);
    return is_f8_ ? byte : static_cast<uint8_t>(byte ^ 0x80u);
  }
  CodeGroup group(int64_t row, int64_t g) const override {
    const int64_t i = block(row, g);
    return {scales_[i] * layout_.factor, 128 + (zeros_ ? load_at<int8_t>(zeros_, i) : 0)};
  }

 private:
  int64_t block(int64_t row, int64_t g) const { return row / layout_.block_rows * cols_ + g; }

  const ScaledLayout layout_;  // with the effective block size
  const int64_t k_, cols_;     // cols_: scales per row of blocks
  const std::byte* data_;
  const NumberView scales_;
  const std::byte* zeros_;
  const NumberView inputs_;
  const bool is_f8_;
  kernels::WeightFormat format_;
  bool has_format_ = false;
};

// (n, k) of a packed matrix from its data's shape.
StatusOr<std::pair<int64_t, int64_t>> packed_size(const PackedTensors& parts,
                                                  const PackedLayout& layout) {
  const StoredTensor& data = *parts.data;
  const bool bytes = layout.packing >= Packing::kPairsOfRows;
  if (data.shape.size() != 2 || data.type != (bytes ? DType::kU8 : DType::kI32))
    return wrong(data, bytes ? "a U8 matrix" : "an I32 matrix");
  const int64_t per = (bytes ? 8 : kWordBits) / layout.bits, a = data.shape[0], b = data.shape[1];
  constexpr int64_t kMost = int64_t{1} << 31;
  if (a < 1 || b < 1 || a > kMost / per || b > kMost / per) return wrong(data, "of a usable size");
  if (layout.packing == Packing::kInputs) return std::pair(b, a * per);
  if (layout.packing == Packing::kOutputs) return std::pair(b * per, a);
  if (layout.packing == Packing::kRows) return std::pair(a, b * per);
  return std::pair(a * per, b);
}

Status check_offsets(const PackedTensors& parts, const PackedLayout& layout, int64_t count) {
  RETURN_IF_ERROR(
      expect(parts.offsets, kFloats, count, fmt::format("{} floats, as many as scales", count)));
  const NumberView scales = numbers_in(parts.scales), offsets = numbers_in(parts.offsets);
  for (int64_t i = 0; i < count; ++i)
    if (zero_of_offset(scales[i], offsets[i], layout.bits) < 0)
      return invalid_argument(
          "tensor '{}': element {} is {}, which is no multiple of the scale {} from {} to {} times",
          parts.offsets->name, i, offsets[i], scales[i], -(1 << (layout.bits - 1)),
          1 << (layout.bits - 1));
  return ok();
}

}  // namespace

StatusOr<StoredTensor> packed_integers(std::string name, const PackedTensors& parts,
                                       const PackedLayout& layout) {
  ASSIGN_OR_RETURN(const auto size, packed_size(parts, layout));
  const auto [n, k] = size;
  const int64_t group = layout.group > 0 ? std::min(layout.group, k) : k;
  const int64_t groups = (k + group - 1) / group, per = kWordBits / layout.bits;
  RETURN_IF_ERROR(expect(
      parts.scales, kFloats, n * groups,
      fmt::format("{} floats, a scale for each of {} rows and {} groups", n * groups, n, groups)));
  if (parts.zeros) {
    if (layout.packing != Packing::kRows && n % per != 0)
      return wrong(*parts.zeros, fmt::format("for {} rows, which are no multiple of {}", n, per));
    const int64_t words = (n + per - 1) / per * groups;
    RETURN_IF_ERROR(expect(parts.zeros, {DType::kI32}, words,
                           fmt::format("{} words of packed zero points", words)));
  }
  if (parts.index) {
    RETURN_IF_ERROR(expect(parts.index, {DType::kI32}, k, fmt::format("{} I32 groups", k)));
    for (int64_t col = 0; col < k; ++col) {
      const auto g = load_at<int32_t>(parts.index->data.data(), col);
      if (g < 0 || g >= groups)
        return invalid_argument("tensor '{}': column {} is in group {} of {}", parts.index->name,
                                col, g, groups);
    }
  }
  if (parts.inputs) RETURN_IF_ERROR(expect(parts.inputs, kFloats, k, fmt::format("{} floats", k)));
  if (parts.offsets) RETURN_IF_ERROR(check_offsets(parts, layout, n * groups));
  return encoded(std::move(name), *parts.data,
                 layout.bits == 4   ? "INT4"
                 : layout.bits == 8 ? "INT8"
                                    : "INT2",
                 {n, k}, std::make_shared<PackedIntegers>(parts, layout, n, k));
}

StatusOr<StoredTensor> scaled_bytes(std::string name, const ScaledTensors& parts,
                                    const ScaledLayout& layout) {
  const StoredTensor& data = *parts.data;
  if (data.shape.size() != 2 || (data.type != DType::kI8 && data.type != DType::kF8E4M3) ||
      data.shape[0] < 1 || data.shape[1] < 1)
    return wrong(data, "an I8 or F8_E4M3 matrix");
  const int64_t n = data.shape[0], k = data.shape[1];
  ScaledLayout found = layout;
  const bool one = parts.scales && count_of(*parts.scales) == 1;
  if (one || layout.block_rows <= 0) found.block_rows = n;
  if (one || layout.block_cols <= 0) found.block_cols = k;
  const int64_t rows = (n + found.block_rows - 1) / found.block_rows;
  const int64_t cols = (k + found.block_cols - 1) / found.block_cols;
  RETURN_IF_ERROR(
      expect(parts.scales, data.type == DType::kF8E4M3 ? kFloatsOrPowers : kFloats, rows * cols,
             fmt::format("1 or {} floats, scales of {} x {} blocks", rows * cols, rows, cols)));
  if (parts.zeros)
    RETURN_IF_ERROR(expect(parts.zeros, {DType::kI8}, rows * cols,
                           fmt::format("{} I8 zero points", rows * cols)));
  if (parts.inputs) RETURN_IF_ERROR(expect(parts.inputs, kFloats, k, fmt::format("{} floats", k)));
  return encoded(std::move(name), data, data.dtype, {n, k},
                 std::make_shared<ScaledBytes>(parts, found, k, cols));
}

}  // namespace nereid::io
