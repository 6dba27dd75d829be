#include "io/quantized_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace nereid::io {
namespace {

constexpr int32_t kWordBits = 32;

template <class T>
T load_at(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

// Floats of any type, or u8 exponents of two.
struct Numbers {
  const std::byte* data = nullptr;
  DType type = DType::kF32;

  float operator[](int64_t i) const {
    switch (type) {
      case DType::kF32:
        return load_at<float>(data, i);
      case DType::kBF16:
        return to_float(load_at<BF16>(data, i));
      case DType::kF16:
        return to_float(load_at<F16>(data, i));
      case DType::kF8E4M3:
        return to_float(load_at<F8E4M3>(data, i));
      default:
        return power_of_two(load_at<uint8_t>(data, i) - 127);
    }
  }
};

int64_t count_of(const StoredTensor& t) {
  return static_cast<int64_t>(t.data.size() / size_of(t.type.value_or(DType::kF32)));
}

Status wrong(const StoredTensor& t, std::string_view wanted) {
  return invalid_argument("tensor '{}': {} {} is not {}", t.name.substr(0, 200), t.dtype,
                          t.shape_text(), wanted);
}

Status expect(const StoredTensor* t, std::initializer_list<DType> types, int64_t count,
              std::string_view wanted) {
  if (!t) return invalid_argument("a tensor ({}) is missing", wanted);
  const bool typed = t->type && std::ranges::find(types, *t->type) != types.end();
  if (!typed || count_of(*t) != count) return wrong(*t, wanted);
  return ok();
}

constexpr std::initializer_list<DType> kFloats = {DType::kF32, DType::kBF16, DType::kF16};
constexpr std::initializer_list<DType> kFloatsOrPowers = {DType::kF32, DType::kBF16, DType::kF16,
                                                          DType::kU8};

Numbers numbers_of(const StoredTensor* t) {
  return t ? Numbers{t->data.data(), *t->type} : Numbers{};
}

// Factors that are all 1 count as none.
Numbers factors_of(const StoredTensor* t) {
  const Numbers factors = numbers_of(t);
  bool is_one = true;
  for (int64_t i = 0; t && is_one && i < count_of(*t); ++i) is_one = factors[i] == 1;
  return is_one ? Numbers{} : factors;
}

StoredTensor encoded(std::string name, const StoredTensor& data, std::string_view dtype,
                     std::vector<int64_t> shape, std::shared_ptr<const Encoding> encoding) {
  StoredTensor out;
  out.name = std::move(name);
  out.dtype = dtype;
  out.shape = std::move(shape);
  out.data = data.data;
  out.encoding = std::move(encoding);
  return out;
}

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
        offsets_(numbers_of(parts.offsets)),
        data_(parts.data->data.data()),
        scales_(numbers_of(parts.scales)),
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
  const Numbers offsets_;
  const std::byte* data_;
  const Numbers scales_;
  const std::byte* zeros_;
  const std::byte* index_;
  const Numbers inputs_;
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
        scales_(numbers_of(parts.scales)),
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
  const Numbers scales_;
  const std::byte* zeros_;
  const Numbers inputs_;
  const bool is_f8_;
  kernels::WeightFormat format_;
  bool has_format_ = false;
};

class OffsetNibbles final : public EncodingOf<OffsetNibbles> {
 public:
  OffsetNibbles(const NibbleTensors& parts, int64_t n, int64_t k, int64_t groups)
      : n_(n),
        k_(k),
        group_(k / groups),
        data_(parts.data->data.data()),
        scales_(numbers_of(parts.scales)),
        offsets_(numbers_of(parts.offsets)),
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
  const Numbers scales_, offsets_, inputs_;
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
        scales_(numbers_of(parts.scales)),
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
  const Numbers scales_, inputs_;
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
        scales_(numbers_of(parts.scales)) {}

  float at(int64_t row, int64_t col) const {
    return static_cast<float>(number(row, col)) *
           (scales_[row * (k_ / group_) + col / group_] * factor_);
  }
  std::optional<kernels::WeightFormat> format() const override {
    kernels::WeightFormat format = kernels::kInt8PerRow;
    format.group = static_cast<int32_t>(group_);
    return format;
  }
  uint8_t code(int64_t row, int64_t col) const override {
    return static_cast<uint8_t>(number(row, col) + 128);
  }
  CodeGroup group(int64_t row, int64_t g) const override {
    return {scales_[row * (k_ / group_) + g] * factor_, 128};
  }

 private:
  int32_t number(int64_t row, int64_t col) const {
    const auto byte = load_at<uint8_t>(data_, (row * k_ + col) / 2);
    return twice_e2m1(static_cast<uint8_t>(byte >> (col % 2 * 4) & 15));
  }

  const int64_t k_, group_;
  const float factor_;
  const std::byte* data_;
  const Numbers scales_;
};

class TurnedFloats final : public EncodingOf<TurnedFloats> {
 public:
  TurnedFloats(const StoredTensor& stack, int64_t first)
      : numbers_(numbers_of(&stack)), cols_(stack.shape[2]), first_(first) {}

  float at(int64_t row, int64_t col) const { return numbers_[first_ + col * cols_ + row]; }

 private:
  const Numbers numbers_;
  const int64_t cols_, first_;
};

class TableNibbles final : public EncodingOf<TableNibbles> {
 public:
  TableNibbles(const TableTensors& parts, const TableLayout& layout)
      : layout_(layout),
        data_(parts.data->data.data()),
        table_(numbers_of(parts.table)),
        largest_(numbers_of(parts.largest)),
        largest_table_(numbers_of(parts.largest_table)),
        largest_scale_(numbers_of(parts.largest_scale)) {}

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
  const Numbers table_, largest_, largest_table_, largest_scale_;
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
  const Numbers scales = numbers_of(parts.scales), offsets = numbers_of(parts.offsets);
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
    factor = numbers_of(parts.factor)[0];
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
