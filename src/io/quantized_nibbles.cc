// 4-bit numbers and floats of quantised matrices, and parts of stacks of matrices.
#include <algorithm>
#include <cmath>
#include <utility>

#include "io/quantized_parts.h"
#include "io/quantized_tensors.h"

namespace nereid::io {
namespace {

class OffsetNibbles final : public EncodingOf<OffsetNibbles> {
 public:
  OffsetNibbles(const NibbleTensors& parts, int64_t n, int64_t k, int64_t groups)
      : n_(n),
        k_(k),
        group_(k / groups),
        data_(parts.data->data.data()),
        scales_(numbers_in(parts.scales)),
        offsets_(numbers_in(parts.offsets)),
        inputs_(factors_of(parts.inputs)) {
    format_ = {.scheme = kernels::Scheme::kInteger,
               .bits = 4,
               .group = groups > 1 ? static_cast<int32_t>(group_) : 0};
    for (int64_t i = 0; i < n * groups; ++i) format_.minima |= offsets_[i] != 0;
    has_format_ = !inputs_.data && (groups == 1 || group_ % kernels::kGroupUnit == 0);
  }

  float at(int64_t row, int64_t col) const {
    const int64_t i = col / group_ * n_ + row;
    const float value = static_cast<float>(code(row, col) - kMiddle) * scales_[i] + offsets_[i];
    return inputs_.data ? value * inputs_[col] : value;
  }
  std::optional<kernels::WeightFormat> format() const override {
    return has_format_ ? std::optional(format_) : std::nullopt;
  }
  uint8_t code(int64_t row, int64_t col) const override {
    const auto byte = load_at<uint8_t>(data_, (row * k_ + col) / 2);
    return static_cast<uint8_t>((byte >> (col % 2 * 4) & 15) ^ kMiddle);
  }
  CodeGroup group(int64_t row, int64_t g) const override {
    const float scale = scales_[g * n_ + row];
    if (!format_.minima) return {scale, kMiddle};
    return {scale, 0, kMiddle * scale - offsets_[g * n_ + row]};
  }

 private:
  static constexpr uint8_t kMiddle = 8;

  const int64_t n_, k_, group_;
  const std::byte* data_;
  const NumberView scales_, offsets_, inputs_;
  kernels::WeightFormat format_;
  bool has_format_ = false;
};

class TiledNibbles final : public EncodingOf<TiledNibbles> {
 public:
  TiledNibbles(const TiledTensors& parts, int64_t n, int64_t k)
      : rows_(parts.data->shape[0] * kTileRows),
        words_(parts.data->shape[3]),
        tiles_(parts.data->shape[1]),
        group_(tiles_ * words_ * kWordCols * rows_ * 2 / count_of(*parts.scales)),
        data_(parts.data->data.data()),
        scales_(numbers_in(parts.scales)),
        inputs_(factors_of(parts.inputs)) {
    const int64_t groups = (k + group_ - 1) / group_;
    format_ = {.scheme = kernels::Scheme::kInteger,
               .bits = 4,
               .group = groups > 1 ? static_cast<int32_t>(group_) : 0};
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t row = 0; row < n; ++row) format_.minima |= offset(row, g) != 0;
    has_format_ = !inputs_.data && (groups == 1 || group_ % kernels::kGroupUnit == 0);
  }

  float at(int64_t row, int64_t col) const {
    const int64_t g = col / group_;
    const float value =
        static_cast<float>(code(row, col) - kMiddle) * scale(row, g) + offset(row, g);
    return inputs_.data ? value * inputs_[col] : value;
  }
  std::optional<kernels::WeightFormat> format() const override {
    return has_format_ ? std::optional(format_) : std::nullopt;
  }
  uint8_t code(int64_t row, int64_t col) const override {
    const int64_t word = col / kWordCols % words_, tile = col / (kWordCols * words_);
    const int64_t in_tile = col % 16, lane = row % kTileRows * 4 + in_tile / 2 % 4;
    const int64_t at = ((row / kTileRows * tiles_ + tile) * 32 + lane) * words_ + word;
    const int64_t pair = col % kWordCols / 16 * 2 + in_tile / 8;
    const auto bits = load_at<uint32_t>(data_, at);
    return static_cast<uint8_t>(bits >> (4 * (pair + col % 2 * 4)) & 15);
  }
  CodeGroup group(int64_t row, int64_t g) const override {
    if (!format_.minima) return {scale(row, g), kMiddle};
    return {scale(row, g), 0, kMiddle * scale(row, g) - offset(row, g)};
  }

  static constexpr int64_t kTileRows = 8, kWordCols = 32;  // columns of a word: two tiles

 private:
  static constexpr uint8_t kMiddle = 8;

  float scale(int64_t row, int64_t g) const { return scales_[(g * rows_ + row) * 2]; }
  float offset(int64_t row, int64_t g) const { return scales_[(g * rows_ + row) * 2 + 1]; }

  const int64_t rows_, words_, tiles_, group_;
  const std::byte* data_;
  const NumberView scales_, inputs_;
  kernels::WeightFormat format_;
  bool has_format_ = false;
};

class E2m1Blocks final : public EncodingOf<E2m1Blocks> {
 public:
  E2m1Blocks(const E2m1Tensors& parts, float factor, int64_t k, int64_t group)
      : k_(k),
        group_(group),
        factor_(factor / 2),
        data_(parts.data->data.data()),
        scales_(numbers_in(parts.scales)) {}

  float at(int64_t row, int64_t col) const {
    return static_cast<float>(number(row, col)) *
           (scales_[row * (k_ / group_) + col / group_] * factor_);
  }
  std::optional<kernels::WeightFormat> format() const override {
    if (is_mxfp4()) return kernels::kMxfp4;
    kernels::WeightFormat format = kernels::kInt8PerRow;
    format.group = static_cast<int32_t>(group_);
    return format;
  }
  uint8_t code(int64_t row, int64_t col) const override {
    return is_mxfp4() ? bits(row, col) : static_cast<uint8_t>(number(row, col) + 128);
  }
  CodeGroup group(int64_t row, int64_t g) const override {
    const float scale = scales_[row * (k_ / group_) + g];
    return is_mxfp4() ? CodeGroup{scale} : CodeGroup{scale * factor_, 128};
  }

 private:
  // Groups of NVFP4 have 16 columns.
  bool is_mxfp4() const { return group_ == kernels::kMxfp4.group && factor_ == 0.5f; }
  uint8_t bits(int64_t row, int64_t col) const {
    const auto byte = load_at<uint8_t>(data_, (row * k_ + col) / 2);
    return static_cast<uint8_t>(byte >> (col % 2 * 4) & 15);
  }
  int32_t number(int64_t row, int64_t col) const { return twice_e2m1(bits(row, col)); }

  const int64_t k_, group_;
  const float factor_;
  const std::byte* data_;
  const NumberView scales_;
};

class TurnedFloats final : public EncodingOf<TurnedFloats> {
 public:
  TurnedFloats(const StoredTensor& stack, int64_t first)
      : numbers_(numbers_in(&stack)), cols_(stack.shape[2]), first_(first) {}

  float at(int64_t row, int64_t col) const { return numbers_[first_ + col * cols_ + row]; }

 private:
  const NumberView numbers_;
  const int64_t cols_, first_;
};

class TableNibbles final : public EncodingOf<TableNibbles> {
 public:
  TableNibbles(const TableTensors& parts, const TableLayout& layout)
      : layout_(layout),
        data_(parts.data->data.data()),
        table_(numbers_in(parts.table)),
        largest_(numbers_in(parts.largest)),
        largest_table_(numbers_in(parts.largest_table)),
        largest_scale_(numbers_in(parts.largest_scale)) {}

  float at(int64_t row, int64_t col) const {
    const int64_t i = row * layout_.k + col;
    const auto byte = load_at<uint8_t>(data_, i / 2);
    return table_[i % 2 == 0 ? byte >> 4 : byte & 15] * largest(i / layout_.block);
  }

 private:
  float largest(int64_t block) const {
    if (!largest_table_.data) return largest_[block];
    const auto step = load_at<uint8_t>(largest_.data, block);
    return largest_table_[step] * largest_scale_[block / layout_.outer] + layout_.offset;
  }

  const TableLayout layout_;
  const std::byte* data_;
  const NumberView table_, largest_, largest_table_, largest_scale_;
};

}  // namespace

StatusOr<StoredTensor> offset_nibbles(std::string name, const NibbleTensors& parts) {
  const StoredTensor& data = *parts.data;
  const bool bytes = data.type == DType::kI8 || data.type == DType::kU8;
  constexpr int64_t kMost = int64_t{1} << 30;
  if (!bytes || data.shape.size() != 2 || data.shape[0] < 1 || data.shape[1] < 1 ||
      data.shape[0] > kMost || data.shape[1] > kMost)
    return wrong(data, "an I8 matrix");
  const int64_t n = data.shape[0], k = 2 * data.shape[1];
  const int64_t groups = parts.scales && parts.scales->type ? count_of(*parts.scales) / n : 0;
  if (groups < 1 || k % groups != 0)
    return wrong(data, fmt::format("of equal groups; there are scales for {}", groups));
  for (const StoredTensor* one : {parts.scales, parts.offsets})
    RETURN_IF_ERROR(
        expect(one, kFloats, n * groups, fmt::format("floats of {} groups, {} rows", groups, n)));
  if (parts.inputs) RETURN_IF_ERROR(expect(parts.inputs, kFloats, k, fmt::format("{} floats", k)));
  return encoded(std::move(name), data, "INT4", {n, k},
                 std::make_shared<OffsetNibbles>(parts, n, k, groups));
}

StatusOr<StoredTensor> tiled_nibbles(std::string name, const TiledTensors& parts, int64_t n,
                                     int64_t k) {
  const StoredTensor& data = *parts.data;
  constexpr int64_t kMost = int64_t{1} << 26;
  const bool is_tiled = data.type == DType::kI32 && data.shape.size() == 4 && data.shape[2] == 32 &&
                        data.shape[0] >= 1 && data.shape[0] <= kMost && data.shape[1] >= 1 &&
                        data.shape[1] <= kMost;
  const int64_t words = is_tiled ? data.shape[3] : 0;
  if (words != 1 && words != 2 && words != 4)
    return wrong(data, "I32 [rows / 8, columns / 128, 32, 4]");
  const int64_t rows = data.shape[0] * TiledNibbles::kTileRows;
  const int64_t cols = data.shape[1] * words * TiledNibbles::kWordCols;
  if (n == 0) n = rows;
  if (k == 0) k = cols;
  if (n < 1 || n > rows || k < 1 || k > cols)
    return invalid_argument("tensor '{}': {} rows of {} columns are not in tiles of {} x {}",
                            data.name.substr(0, 200), n, k, rows, cols);
  const StoredTensor* const scales = parts.scales;
  const int64_t groups = scales && scales->type ? count_of(*scales) / (2 * rows) : 0;
  if (groups < 1 || cols % groups != 0)
    return wrong(data, fmt::format("of equal groups; there are scales for {}", groups));
  RETURN_IF_ERROR(expect(scales, kFloats, 2 * rows * groups,
                         fmt::format("scales and offsets of {} groups, {} rows", groups, rows)));
  if (parts.inputs) RETURN_IF_ERROR(expect(parts.inputs, kFloats, k, fmt::format("{} floats", k)));
  return encoded(std::move(name), data, "INT4", {n, k},
                 std::make_shared<TiledNibbles>(parts, n, k));
}

StatusOr<StoredTensor> e2m1_blocks(std::string name, const E2m1Tensors& parts) {
  const StoredTensor& data = *parts.data;
  std::vector<int64_t> shape = data.shape;
  const bool in_blocks = shape.size() >= 3 && shape.back() == 16;
  if (in_blocks) shape.pop_back(), shape.back() *= 16;
  if (data.type != DType::kU8 || shape.size() < 2 ||
      std::ranges::any_of(shape, [](int64_t x) { return x < 1 || x > int64_t{1} << 31; }))
    return wrong(data, "U8 [..., n, k / 2] or [..., n, k / 32, 16]");
  shape.back() *= 2;
  const int64_t k = shape.back(), count = 2 * count_of(data);
  const StoredTensor* scales = parts.scales;
  const bool powers = scales && scales->type == DType::kU8;
  const int64_t group = powers ? 32 : 16;
  if (k % group != 0) return wrong(data, fmt::format("rows of whole groups of {}", group));
  RETURN_IF_ERROR(
      expect(scales, {DType::kU8, DType::kF8E4M3}, count / group,
             fmt::format("{} scales, U8 of 32 or F8_E4M3 of 16 numbers", count / group)));
  float factor = 1;
  if (parts.factor) {
    RETURN_IF_ERROR(expect(parts.factor, {DType::kF32}, 1, "one F32"));
    factor = numbers_in(parts.factor)[0];
    if (parts.divide) factor = 1 / factor;
    if (!std::isfinite(factor)) return wrong(*parts.factor, "a finite factor above 0");
  }
  if (parts.transposed) std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  StoredTensor out = encoded(std::move(name), data, powers ? "MXFP4" : "NVFP4", std::move(shape),
                             std::make_shared<E2m1Blocks>(parts, factor, k, group));
  out.transposed = parts.transposed;
  return out;
}

StatusOr<StoredTensor> part_of_stack(std::string name, const StoredTensor& stack,
                                     const StackPart& part) {
  const std::vector<int64_t>& shape = stack.shape;
  const bool is_float = stack.type && std::ranges::find(kFloats, *stack.type) != kFloats.end();
  if (!is_float || shape.size() != 3) return wrong(stack, "floats in three dimensions");
  const int64_t rows = shape[part.transposed ? 2 : 1], k = shape[part.transposed ? 1 : 2];
  if (part.index >= shape[0] || part.first + part.n > rows)
    return wrong(stack, fmt::format("of {} matrices of {} rows at least", part.index + 1,
                                    part.first + part.n));
  const int64_t begin = part.index * rows * k;
  if (part.transposed)
    return encoded(std::move(name), stack, stack.dtype, {part.n, k},
                   std::make_shared<TurnedFloats>(stack, begin + part.first));
  StoredTensor out = stack;
  out.name = std::move(name);
  out.shape = {part.n, k};
  const size_t size = size_of(*stack.type);
  out.data = stack.data.subspan(static_cast<size_t>(begin + part.first * k) * size,
                                static_cast<size_t>(part.n * k) * size);
  return out;
}

StatusOr<StoredTensor> table_nibbles(std::string name, const TableTensors& parts,
                                     const TableLayout& l) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (l.n < 1 || l.k < 1 || l.n > kMost || l.k > kMost || l.n * l.k % 2 != 0 || l.block < 1 ||
      l.outer < 1)
    return invalid_argument("tensor '{}': [{}, {}] in blocks of {} and {} is not a usable shape",
                            name, l.n, l.k, l.block, l.outer);
  const int64_t blocks = (l.n * l.k + l.block - 1) / l.block;
  RETURN_IF_ERROR(expect(parts.data, {DType::kU8}, l.n * l.k / 2,
                         fmt::format("{} bytes, half of [{}, {}]", l.n * l.k / 2, l.n, l.k)));
  RETURN_IF_ERROR(expect(parts.table, {DType::kF32}, 16, "16 F32"));
  if (parts.largest_table) {
    RETURN_IF_ERROR(expect(parts.largest, {DType::kU8}, blocks, fmt::format("{} bytes", blocks)));
    RETURN_IF_ERROR(expect(parts.largest_table, {DType::kF32}, 256, "256 F32"));
    const int64_t outer = (blocks + l.outer - 1) / l.outer;
    RETURN_IF_ERROR(
        expect(parts.largest_scale, {DType::kF32}, outer, fmt::format("{} F32", outer)));
  } else {
    RETURN_IF_ERROR(expect(parts.largest, {DType::kF32}, blocks, fmt::format("{} F32", blocks)));
  }
  return encoded(std::move(name), *parts.data, "NF4", {l.n, l.k},
                 std::make_shared<TableNibbles>(parts, l));
}

}  // namespace nereid::io
