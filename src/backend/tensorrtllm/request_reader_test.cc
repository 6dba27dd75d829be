// Word lists in tensor form, ranges of values, half precision.
#include "backend/tensorrtllm/tensor_fields.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/tensorrtllm/half.h"
#include "tensor/dtype.h"

namespace nereid::backend {
namespace {

using Words = std::vector<std::vector<TokenId>>;

TEST(ReadWords, ReadsWhatTheFormatSays) {
  EXPECT_EQ(*read_words({1, 2, 3, 2, 3, -1}), (Words{{1, 2}, {3}}));
  EXPECT_EQ(*read_words({}), Words{});
  EXPECT_EQ(*read_words({0, -1}), Words{});
  EXPECT_EQ(*read_words({7, 8, 1, 2}), (Words{{7}, {8}}));
}

TEST(ReadWords, RefusesWhatItForbids) {
  const auto error = [](const std::vector<int32_t>& flat) {
    return std::string(message(read_words(flat).status()));
  };
  EXPECT_EQ(error({1, 2, 3}), "Sparse list must not have odd length: 1 2 3 ");
  EXPECT_EQ(error({1, 2, -1, 2}), "Sparse list must not have additional -1s: 1 2 -1 2 ");
  EXPECT_EQ(error({1, 2, 3, -1}), "Sparse list must not have out-of-bound offsets: 1 2 3 -1 ");
  EXPECT_EQ(error({1, 2, 2, 1}), "Sparse list must not have non-increasing offsets: 1 2 2 1 ");
  EXPECT_EQ(error({1, -5}), "Sparse list must not have non-increasing offsets: 1 -5 ");
}

TEST(CheckValue, NamesTensorValueAndRange) {
  EXPECT_TRUE(check_value("x", 1, {0, 1}).ok());
  EXPECT_TRUE(check_value("x", 0, {0, 1}).ok());
  EXPECT_EQ(message(check_value("x", 0, {0, 1, true})),
            "input 'x' is 0, expected a value in (0, 1]");
  EXPECT_EQ(message(check_value("x", -1, {0})), "input 'x' is -1, expected at least 0");
  EXPECT_EQ(message(check_value("x", NAN, {})), "input 'x' is nan, expected a finite number");
  EXPECT_FALSE(check_value("x", INFINITY, {}).ok());
}

TEST(ValuesOf, TakesUnsignedCountsThatFit) {
  InputView view;
  view.datatype = TRITONSERVER_TYPE_UINT32;
  view.bytes = std::string_view("\x07\0\0\0\xff\xff\xff\x7f", 8);
  EXPECT_EQ(*values_of<int32_t>("REQUEST_OUTPUT_LEN", view), (std::vector<int32_t>{7, 2147483647}));
  view.bytes = std::string_view("\0\0\0\x80", 4);
  EXPECT_EQ(message(values_of<int32_t>("REQUEST_OUTPUT_LEN", view).status()),
            "input 'REQUEST_OUTPUT_LEN' is 2147483648, expected at most 2147483647");
}

TEST(ItemEnds, StringsOfABatchAreCutOnce) {
  const Output texts = make_output("x", {2, 2}, std::vector<std::string>{"a", "", "bcd", "e"});
  InputView view{TRITONSERVER_TYPE_BYTES, texts.shape, texts.bytes, nullptr};
  EXPECT_EQ(*item_ends("x", view, 2), (std::vector<size_t>{9, 21}));
  EXPECT_EQ(*item_ends("x", view, 4), (std::vector<size_t>{5, 9, 16, 21}));
  EXPECT_EQ(message(item_ends("x", view, 3).status()),
            "input 'x' does not divide into the 3 items of the batch");
  view.bytes.remove_suffix(1);
  EXPECT_EQ(message(item_ends("x", view, 2).status()), "input 'x' holds incomplete strings");
  view.bytes = {};
  EXPECT_EQ(*item_ends("x", view, 2), (std::vector<size_t>{0, 0}));
}

TEST(Half, RoundsToNearestEven) {
  const std::pair<float, uint16_t> cases[] = {
      {0.0f, 0x0000},      {-0.0f, 0x8000},    {1.0f, 0x3C00},         {-2.0f, 0xC000},
      {65504.0f, 0x7BFF},  {65519.9f, 0x7BFF}, {65520.0f, 0x7C00},     {0.1f, 0x2E66},
      {1.0f / 3, 0x3555},  {2049.0f, 0x6800},  {2051.0f, 0x6802},      {6.103515625e-5f, 0x0400},
      {5.96e-8f, 0x0001},  {2.9e-8f, 0x0000},  {6.097555e-5f, 0x03FF}, {1e30f, 0x7C00},
      {-INFINITY, 0xFC00},
  };
  for (const auto& [value, bits] : cases) EXPECT_EQ(to_f16(value).bits, bits) << value;
  EXPECT_GT(to_f16(NAN).bits & 0x7FFF, 0x7C00);
  EXPECT_EQ(to_half_bytes({1.0f, -2.0f}), std::string("\0\x3C\0\xC0", 4));
}

}  // namespace
}  // namespace nereid::backend
