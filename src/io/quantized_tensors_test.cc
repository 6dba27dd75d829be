// Matrices made of several tensors: inconsistent ones are refused before numbers are read.
// tests/quantized compares the numbers with independent writers.
#include "io/quantized_tensors.h"

#include <gmock/gmock.h>

#include <cstring>
#include <random>

#include "io/ggml_blocks.h"

namespace nereid::io {
namespace {

using testing::HasSubstr;

class QuantizedTensorsTest : public testing::Test {
 protected:
  // Zeros, or `bytes`.
  const StoredTensor* tensor(const std::string& name, DType type, std::vector<int64_t> shape,
                             std::vector<uint8_t> bytes = {}) {
    size_t size = size_of(type);
    for (const int64_t x : shape) size *= static_cast<size_t>(x);
    bytes.resize(size);
    bytes_.push_back(std::make_unique<std::vector<uint8_t>>(std::move(bytes)));
    StoredTensor& out = *tensors_.emplace_back(std::make_unique<StoredTensor>());
    out.name = name, out.dtype = name_of(type), out.type = type, out.shape = std::move(shape);
    out.data = std::as_bytes(std::span(*bytes_.back()));
    return &out;
  }
  static std::string error_of(const StatusOr<StoredTensor>& result) {
    return result.ok() ? "" : std::string(message(result.status()));
  }

  std::vector<std::unique_ptr<std::vector<uint8_t>>> bytes_;
  std::vector<std::unique_ptr<StoredTensor>> tensors_;
};

TEST_F(QuantizedTensorsTest, PackedIntegersThatDoNotFitAreNamed) {
  const auto* data = tensor("q", DType::kI32, {8, 16});  // k = 64, n = 16
  const auto* scales = tensor("s", DType::kF16, {2, 16});
  const auto* zeros = tensor("z", DType::kI32, {2, 2});
  const PackedLayout layout{Packing::kInputs, 4, 32, 1};
  const auto made = packed_integers("w", {data, scales, zeros}, layout);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->shape, (std::vector<int64_t>{16, 64}));
  EXPECT_EQ(made->encoding->format()->group, 32);
  EXPECT_THAT(error_of(packed_integers("w", {data, nullptr, zeros}, layout)),
              HasSubstr("a scale for each of 16 rows and 2 groups) is missing"));
  EXPECT_THAT(error_of(packed_integers("w", {data, zeros, zeros}, layout)), HasSubstr("'z': i32"));
  EXPECT_THAT(error_of(packed_integers("w", {data, scales, scales}, layout)),
              HasSubstr("'s': f16 [2, 16] is not 4 words of packed zero points"));
  const auto* index = tensor("i", DType::kI32, {64}, {0, 0, 0, 0, 2, 0, 0, 0});
  EXPECT_THAT(error_of(packed_integers("w", {data, scales, zeros, index}, layout)),
              HasSubstr("'i': column 1 is in group 2 of 2"));
  const auto* negative = tensor("i", DType::kI32, {64}, {255, 255, 255, 255});
  EXPECT_THAT(error_of(packed_integers("w", {data, scales, zeros, negative}, layout)),
              HasSubstr("column 0 is in group -1"));
  EXPECT_THAT(error_of(packed_integers("w", {tensor("q", DType::kF32, {8, 16}), scales}, layout)),
              HasSubstr("'q': f32 [8, 16] is not an I32 matrix"));
  StoredTensor empty = *data;
  empty.shape = {0, 16};
  EXPECT_THAT(error_of(packed_integers("w", {&empty, scales}, layout)), HasSubstr("usable size"));
}

// Bytes of the floats.
std::vector<uint8_t> bytes_of(std::vector<float> numbers) {
  std::vector<uint8_t> bytes(numbers.size() * sizeof(float));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

// Integers times their scale, plus their offset; an engine stores offsets as minima.
TEST_F(QuantizedTensorsTest, OffsetNibbles) {
  const auto* data = tensor("q", DType::kI8, {1, 16}, {0x78, 0x0f});  // -8 7 -1 0 0 0 ...
  const auto* scales = tensor("s", DType::kF32, {2, 1}, bytes_of({0.5f, 2}));
  const auto* offsets = tensor("z", DType::kF32, {2, 1}, bytes_of({0.75f, -1}));
  const auto made = offset_nibbles("w", {data, scales, offsets});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->shape, (std::vector<int64_t>{1, 32}));
  std::vector<float> row(17);
  made->encoding->read(0, 0, 0, 1, row);
  EXPECT_EQ(row[0], -3.25f);
  EXPECT_EQ(row[1], 4.25f);
  EXPECT_EQ(row[2], 0.25f);
  EXPECT_EQ(row[3], 0.75f);
  EXPECT_EQ(row[16], -1);
  ASSERT_TRUE(made->encoding->format());
  EXPECT_TRUE(made->encoding->format()->minima);
  EXPECT_EQ(made->encoding->code(0, 1), 15);
  EXPECT_EQ(made->encoding->group(0, 1).minimum, 17);
  const auto* none = tensor("z", DType::kF32, {2, 1});
  EXPECT_FALSE(offset_nibbles("w", {data, scales, none})->encoding->format()->minima);
  const auto* inputs = tensor("i", DType::kF32, {32}, bytes_of(std::vector<float>(32, 2)));
  const auto scaled = offset_nibbles("w", {data, scales, offsets, inputs});
  scaled->encoding->read(0, 0, 0, 1, row);
  EXPECT_EQ(row[0], -6.5f);
  EXPECT_FALSE(scaled->encoding->format());
  EXPECT_THAT(error_of(offset_nibbles("w", {data, nullptr, offsets})), HasSubstr("scales for 0"));
  EXPECT_THAT(error_of(offset_nibbles("w", {data, scales, tensor("z", DType::kF32, {1, 1})})),
              HasSubstr("'z': f32 [1, 1] is not floats of 2 groups, 1 rows"));
}

// Integers in the order of NVIDIA's tensor cores; padding of the tiles is not part of the matrix.
TEST_F(QuantizedTensorsTest, TiledNibbles) {
  constexpr int64_t kRows = 16, kCols = 256, kGroups = 2;
  const auto code = [](int64_t row, int64_t col) { return (row * 7 + col * 3 + col / 16) % 16; };
  std::vector<uint8_t> bytes(kRows * kCols / 2);
  for (int64_t tile = 0; tile < kRows / 8; ++tile)
    for (int64_t outer = 0; outer < kCols / 128; ++outer)
      for (int64_t lane = 0; lane < 32; ++lane)
        for (int64_t word = 0; word < 4; ++word) {
          const int64_t row = tile * 8 + lane / 4;
          const int64_t first = outer * 128 + word * 32 + lane % 4 * 2;
          const int64_t at = (((tile * 2 + outer) * 32 + lane) * 4 + word) * 4;
          const int64_t columns[] = {0, 8, 16, 24, 1, 9, 17, 25};
          for (int64_t i = 0; i < 8; ++i)
            bytes[static_cast<size_t>(at + i / 2)] |=
                static_cast<uint8_t>(code(row, first + columns[i]) << (i % 2 * 4));
        }
  const auto* data = tensor("q", DType::kI32, {2, 2, 32, 4}, bytes);
  std::vector<float> pairs;
  for (int64_t i = 0; i < kGroups * kRows; ++i)
    pairs.push_back(0.5f + static_cast<float>(i)), pairs.push_back(static_cast<float>(i % 3));
  const auto* scales = tensor("s", DType::kF32, {kGroups, kRows, 2}, bytes_of(pairs));
  const auto made = tiled_nibbles("w", {data, scales}, 13, 200);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->shape, (std::vector<int64_t>{13, 200}));
  ASSERT_TRUE(made->encoding->format());
  EXPECT_TRUE(made->encoding->format()->minima);
  EXPECT_EQ(made->encoding->format()->group, 128);
  for (int64_t row = 0; row < 13; ++row) {
    std::vector<float> numbers(200);
    made->encoding->read(row, 0, 0, 1, numbers);
    for (int64_t col = 0; col < 200; ++col) {
      const auto i = static_cast<size_t>(col / 128 * kRows + row);
      ASSERT_EQ(made->encoding->code(row, col), code(row, col)) << row << " " << col;
      ASSERT_EQ(numbers[static_cast<size_t>(col)],
                static_cast<float>(code(row, col) - 8) * pairs[2 * i] + pairs[2 * i + 1]);
    }
    EXPECT_EQ(made->encoding->group(row, 1).minimum,
              8 * pairs[static_cast<size_t>(2 * (kRows + row))] -
                  pairs[static_cast<size_t>(2 * (kRows + row) + 1)]);
  }
  EXPECT_EQ(tiled_nibbles("w", {data, scales})->shape, (std::vector<int64_t>{kRows, kCols}));
  EXPECT_THAT(error_of(tiled_nibbles("w", {data, scales}, 17, 256)),
              HasSubstr("'q': 17 rows of 256 columns are not in tiles of 16 x 256"));
  EXPECT_THAT(error_of(tiled_nibbles("w", {data, nullptr})), HasSubstr("scales for 0"));
  EXPECT_THAT(error_of(tiled_nibbles("w", {tensor("q", DType::kI32, {2, 2, 16, 8}), scales})),
              HasSubstr("is not I32 [rows / 8, columns / 128, 32, 4]"));
  const auto* inputs = tensor("i", DType::kF32, {200}, bytes_of(std::vector<float>(200, 2)));
  EXPECT_FALSE(tiled_nibbles("w", {data, scales, inputs}, 13, 200)->encoding->format());
}

TEST_F(QuantizedTensorsTest, ScalesOfFloat8MayBeExponents) {
  const auto* data = tensor("q", DType::kF8E4M3, {1, 64}, {0x38});  // 1 0 0 ...
  const auto* scales = tensor("s", DType::kU8, {1, 2}, {129, 127});
  const auto made = scaled_bytes("w", {data, scales}, {1, 32});
  ASSERT_TRUE(made.ok()) << made.status();
  float first = 0;
  made->encoding->read(0, 0, 0, 1, std::span(&first, 1));
  EXPECT_EQ(first, 4);
  EXPECT_THAT(error_of(scaled_bytes("w", {tensor("q", DType::kI8, {1, 64}), scales}, {1, 32})),
              HasSubstr("'s': u8 [1, 2] is not"));
}

TEST_F(QuantizedTensorsTest, PartsOfStacks) {
  const auto* stack =
      tensor("x", DType::kF32, {2, 2, 3}, bytes_of({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  const auto plain = part_of_stack("w", *stack, {.index = 1, .first = 1, .n = 1});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->shape, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(plain->data.data(), stack->data.subspan(36).data());
  const auto transposed =
      part_of_stack("w", *stack, {.index = 1, .first = 1, .n = 2, .transposed = true});
  ASSERT_TRUE(transposed.ok()) << transposed.status();
  EXPECT_EQ(transposed->shape, (std::vector<int64_t>{2, 2}));
  std::vector<float> row(2);
  transposed->encoding->read(1, 0, 0, 1, row);
  EXPECT_EQ(row, (std::vector<float>{8, 11}));
  EXPECT_THAT(error_of(part_of_stack("w", *stack, {.index = 2, .n = 2})),
              HasSubstr("is not of 3 matrices of 2 rows at least"));
  EXPECT_THAT(error_of(part_of_stack("w", *tensor("x", DType::kI8, {1, 2, 2}), {.n = 2})),
              HasSubstr("'x': i8 [1, 2, 2] is not floats in three dimensions"));
}

// An offset that is a multiple of the scale becomes a zero point.
TEST_F(QuantizedTensorsTest, OffsetsAreZeroPoints) {
  const auto* data = tensor("q", DType::kU8, {2, 32}, {0x80, 0, 0x7f});
  const auto* scales = tensor("s", DType::kF32, {2, 2}, bytes_of({0.5f, 2, 4, 0.25f}));
  const PackedLayout layout{Packing::kBytes, 8, 16};
  const auto made = [&](std::vector<float> offsets) {
    const auto* moved = tensor("z", DType::kF32, {2, 2}, bytes_of(std::move(offsets)));
    return packed_integers("w", {data, scales, nullptr, nullptr, nullptr, moved}, layout);
  };
  const auto moved = made({-1.5f, 0, 0, 2});  // group 0 of both rows, then group 1
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ(moved->shape, (std::vector<int64_t>{2, 32}));
  EXPECT_TRUE(moved->encoding->format()->zeros);
  EXPECT_EQ(moved->encoding->group(0, 0).zero, 128 + 3);
  EXPECT_EQ(moved->encoding->group(1, 1).zero, 128 - 8);
  EXPECT_EQ(moved->encoding->code(0, 0), 0);
  std::vector<float> numbers(3);
  moved->encoding->read(0, 0, 0, 1, numbers);
  EXPECT_THAT(numbers, testing::ElementsAre(-65.5f, -1.5f, 62));
  EXPECT_FALSE(made({0, 0, 0, 0})->encoding->format()->zeros);
  EXPECT_THAT(
      error_of(made({0, 0, 1, 0})),
      HasSubstr("'z': element 2 is 1, which is no multiple of the scale 4 from -128 to 128"));
  EXPECT_THAT(error_of(made({0, 400, 0, 0})), HasSubstr("element 1 is 400"));
  EXPECT_THAT(error_of(made({NAN, 0, 0, 0})), HasSubstr("element 0 is nan"));
  EXPECT_THAT(
      error_of(packed_integers(
          "w", {data, scales, nullptr, nullptr, nullptr, tensor("z", DType::kF32, {3})}, layout)),
      HasSubstr("'z': f32 [3] is not 4 floats, as many as scales"));
}

TEST_F(QuantizedTensorsTest, FactorsOfOneAreNone) {
  const auto* data = tensor("q", DType::kU8, {2, 16});
  const auto* scales = tensor("s", DType::kF32, {4, 1});
  const auto format = [&](float last) {
    std::vector<float> factors(16, 1);
    factors[15] = last;
    const auto* inputs = tensor("f", DType::kF32, {16}, bytes_of(factors));
    return packed_integers("w", {data, scales, nullptr, nullptr, inputs},
                           {Packing::kPairsOfRows, 4, 16})
        ->encoding->format();
  };
  EXPECT_TRUE(format(1).has_value());
  EXPECT_FALSE(format(2).has_value());
}

TEST_F(QuantizedTensorsTest, OrderedColumnsHaveNoFormat) {
  const auto* data = tensor("q", DType::kI32, {4, 8});  // k = 32
  const auto* scales = tensor("s", DType::kF32, {2, 8});
  std::vector<uint8_t> order(32 * 4);
  for (size_t col = 0; col < 32; ++col) order[col * 4] = static_cast<uint8_t>(col / 16);
  const PackedLayout layout{Packing::kInputs, 4, 16};
  const auto sorted =
      packed_integers("w", {data, scales, nullptr, tensor("i", DType::kI32, {32}, order)}, layout);
  ASSERT_TRUE(sorted.ok());
  EXPECT_TRUE(sorted->encoding->format().has_value()) << "columns are in order";
  std::swap(order[0], order[16 * 4]);
  const auto mixed =
      packed_integers("w", {data, scales, nullptr, tensor("i", DType::kI32, {32}, order)}, layout);
  ASSERT_TRUE(mixed.ok());
  EXPECT_FALSE(mixed->encoding->format().has_value());
}

TEST_F(QuantizedTensorsTest, BytesWithScalesThatDoNotFitAreNamed) {
  const auto* data = tensor("w", DType::kF8E4M3, {200, 300});
  const auto blocks = ScaledLayout{128, 128};
  EXPECT_EQ(error_of(scaled_bytes("w", {data, tensor("s", DType::kF32, {2, 3})}, blocks)), "");
  EXPECT_THAT(error_of(scaled_bytes("w", {data, tensor("s", DType::kF32, {2, 2})}, blocks)),
              HasSubstr("'s': f32 [2, 2] is not 1 or 6 floats, scales of 2 x 3 blocks"));
  EXPECT_THAT(error_of(scaled_bytes("w", {data, nullptr}, blocks)), HasSubstr("is missing"));
  EXPECT_THAT(error_of(scaled_bytes("w", {tensor("w", DType::kF8E4M3, {8}), nullptr}, blocks)),
              HasSubstr("is not an I8 or F8_E4M3 matrix"));
  const auto one = scaled_bytes("w", {data, tensor("s", DType::kF32, {})}, {});
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(*one->encoding->format(), kernels::kFp8PerRow);
  const auto* bytes = tensor("w", DType::kI8, {8, 32});
  const auto both =
      scaled_bytes("w", {bytes, tensor("s", DType::kF32, {8, 1})}, {.byte_inputs = true});
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(*both->encoding->format(), kernels::kInt8Both);
}

TEST_F(QuantizedTensorsTest, FourBitFloatsThatDoNotFitAreNamed) {
  const auto* data = tensor("b", DType::kU8, {2, 4, 3, 16});
  EXPECT_EQ(error_of(e2m1_blocks("w", {data, tensor("s", DType::kU8, {2, 4, 3})})), "");
  EXPECT_THAT(error_of(e2m1_blocks("w", {data, tensor("s", DType::kU8, {2, 4, 2})})),
              HasSubstr("is not 24 scales"));
  EXPECT_THAT(
      error_of(e2m1_blocks("w", {tensor("b", DType::kU8, {4, 7}), tensor("s", DType::kU8, {4})})),
      HasSubstr("whole groups of 32"));
  const auto* zero = tensor("g", DType::kF32, {1});
  EXPECT_THAT(error_of(e2m1_blocks("w", {data, tensor("s", DType::kU8, {2, 4, 3}), zero, true})),
              HasSubstr("a finite factor above 0"));
  const auto* nibbles = tensor("n", DType::kU8, {32, 1});
  const auto* table = tensor("t", DType::kF32, {16});
  const auto* largest = tensor("a", DType::kF32, {1});
  EXPECT_EQ(error_of(table_nibbles("w", {nibbles, table, largest}, {8, 8})), "");
  EXPECT_THAT(error_of(table_nibbles("w", {nibbles, table, largest}, {8, 16})),
              HasSubstr("is not 64 bytes, half of [8, 16]"));
  EXPECT_THAT(error_of(table_nibbles("w", {nibbles, table, table}, {8, 8})), HasSubstr("'t'"));
  EXPECT_THAT(error_of(table_nibbles("w", {nibbles, table, largest}, {3, 3})),
              HasSubstr("is not a usable shape"));
}

// Blocks with minima copied to an engine represent exactly the numbers read.
TEST(GgmlBlocks, MinimaAreTakenOverAsTheyAre) {
  struct Type {
    uint32_t type;
    int32_t bits, group;
    std::vector<size_t> halves;  // f16 scales of a block
  };
  const Type types[] = {{3, 4, 32, {0, 2}},     // Q4_1
                        {7, 8, 32, {0, 2}},     // Q5_1
                        {10, 4, 16, {80, 82}},  // Q2_K
                        {12, 4, 32, {0, 2}},    // Q4_K
                        {13, 8, 32, {0, 2}}};   // Q5_K
  constexpr int64_t kRows = 3, kCols = 512;
  for (const auto& [type, bits, group, halves] : types) {
    const GgmlBlock block = ggml_block(type);
    std::mt19937 random(type);
    std::vector<std::byte> data(static_cast<size_t>(kRows * kCols / block.numbers * block.bytes));
    for (std::byte& x : data) x = static_cast<std::byte>(random() & 255u);
    for (size_t at = 0; at < data.size(); at += static_cast<size_t>(block.bytes))
      for (const size_t half : halves) data[at + half + 1] &= std::byte{0xb7};  // finite
    const auto blocks = ggml_blocks(type, data, kCols);
    const kernels::WeightFormat wanted = {
        .scheme = kernels::Scheme::kInteger, .bits = bits, .group = group, .minima = true};
    ASSERT_EQ(blocks->format(), wanted) << type;
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t col = 0; col < kCols; ++col) {
        float number = 0;
        blocks->read(row, col, 0, 0, {&number, 1});
        const CodeGroup codes = blocks->group(row, col / group);
        const uint8_t code = blocks->code(row, col);
        ASSERT_LT(code, 1 << bits);
        ASSERT_EQ(std::fma(codes.scale, static_cast<float>(code), -codes.minimum), number)
            << type << ": " << row << ", " << col;
      }
  }
}

}  // namespace
}  // namespace nereid::io
