#include "io/ggml_blocks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "tensor/dtype.h"

namespace nereid::io {
namespace {

using Byte = uint8_t;

float half(const Byte* at) {
  F16 x;
  std::memcpy(&x.bits, at, 2);
  return to_float(x);
}
// Number i of 32: 0 to 15 in the low halves of 16 bytes, then the high halves.
int32_t nibble(const Byte* q, int64_t i) { return q[i % 16] >> (i < 16 ? 0 : 4) & 15; }
int32_t bit(const Byte* bits, int64_t i) { return bits[i / 8] >> (i % 8) & 1; }

// A block type has `kType` (ggml_type), `kNumbers`, `kBytes` and either
// - `integer()` (signed integer i), `scale()` of its group and `kFormat`, whose zero point is added
// to the integer, or
// - `integer()` (unsigned integer i), `scale()` and `minimum()` of its group and `kFormat` with
// minima.
// Products of scales and integers are exact.
constexpr kernels::WeightFormat groups(int32_t bits, int32_t size, bool minima = false) {
  return {.scheme = kernels::Scheme::kInteger, .bits = bits, .group = size, .minima = minima};
}

struct Q4_0 {
  static constexpr uint32_t kType = 2;
  static constexpr int64_t kNumbers = 32, kBytes = 18;
  static constexpr auto kFormat = groups(4, 32);
  static float scale(const Byte* b, int64_t) { return half(b); }
  static int32_t integer(const Byte* b, int64_t i) { return nibble(b + 2, i) - 8; }
};
struct Q4_1 {
  static constexpr uint32_t kType = 3;
  static constexpr int64_t kNumbers = 32, kBytes = 20;
  static constexpr auto kFormat = groups(4, 32, true);
  static float scale(const Byte* b, int64_t) { return half(b); }
  static float minimum(const Byte* b, int64_t) { return -half(b + 2); }
  static int32_t integer(const Byte* b, int64_t i) { return nibble(b + 4, i); }
};
struct Q5_0 {
  static constexpr uint32_t kType = 6;
  static constexpr int64_t kNumbers = 32, kBytes = 22;
  static constexpr auto kFormat = groups(8, 32);
  static float scale(const Byte* b, int64_t) { return half(b); }
  static int32_t integer(const Byte* b, int64_t i) {
    return (nibble(b + 6, i) | bit(b + 2, i) << 4) - 16;
  }
};
struct Q5_1 {
  static constexpr uint32_t kType = 7;
  static constexpr int64_t kNumbers = 32, kBytes = 24;
  static constexpr auto kFormat = groups(8, 32, true);
  static float scale(const Byte* b, int64_t) { return half(b); }
  static float minimum(const Byte* b, int64_t) { return -half(b + 2); }
  static int32_t integer(const Byte* b, int64_t i) { return nibble(b + 8, i) | bit(b + 4, i) << 4; }
};
struct Q8_0 {
  static constexpr uint32_t kType = 8;
  static constexpr int64_t kNumbers = 32, kBytes = 34;
  static constexpr auto kFormat = groups(8, 32);
  static float scale(const Byte* b, int64_t) { return half(b); }
  static int32_t integer(const Byte* b, int64_t i) { return static_cast<int8_t>(b[2 + i]); }
};

// 256 numbers in two halves, each 32 bytes with four 2-bit numbers.
int32_t two_bits(const Byte* q, int64_t i) {
  return q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}
struct Q2_K {
  static constexpr uint32_t kType = 10;
  static constexpr int64_t kNumbers = 256, kBytes = 84;
  static constexpr auto kFormat = groups(4, 16, true);
  static float scale(const Byte* b, int64_t i) {
    return half(b + 80) * static_cast<float>(b[i / 16] & 15);
  }
  static float minimum(const Byte* b, int64_t i) {
    return half(b + 82) * static_cast<float>(b[i / 16] >> 4);
  }
  static int32_t integer(const Byte* b, int64_t i) { return two_bits(b + 16, i); }
};
struct Q3_K {
  static constexpr uint32_t kType = 11;
  static constexpr int64_t kNumbers = 256, kBytes = 110;
  static constexpr auto kFormat = groups(4, 16);
  static float scale(const Byte* b, int64_t i) {
    const int64_t k = i / 16;
    const Byte* s = b + 96;
    const int32_t low = s[k % 8] >> (k < 8 ? 0 : 4) & 15, high = s[8 + k % 4] >> (k / 4 * 2) & 3;
    return half(b + 108) * static_cast<float>((low | high << 4) - 32);
  }
  static int32_t integer(const Byte* b, int64_t i) {
    const int32_t high = b[i % 32] >> (i / 32) & 1;
    return two_bits(b + 32, i) - (high ? 0 : 4);
  }
};

// 6-bit scale and minimum of part j of 8.
struct ScaleAndMinimum {
  int32_t scale, minimum;
};
ScaleAndMinimum six_bits(const Byte* s, int64_t j) {
  if (j < 4) return {s[j] & 63, s[j + 4] & 63};
  return {(s[j + 4] & 15) | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4};
}
// Header of Q4_K and Q5_K blocks.
struct SixBitScales {
  static float scale(const Byte* b, int64_t i) {
    return half(b) * static_cast<float>(six_bits(b + 4, i / 32).scale);
  }
  static float minimum(const Byte* b, int64_t i) {
    return half(b + 2) * static_cast<float>(six_bits(b + 4, i / 32).minimum);
  }
};
// 256 numbers in quarters, each 32 bytes with two 4-bit numbers.
int32_t quarter_nibble(const Byte* q, int64_t i) {
  return q[i / 64 * 32 + i % 32] >> (i % 64 < 32 ? 0 : 4) & 15;
}
struct Q4_K : SixBitScales {
  static constexpr uint32_t kType = 12;
  static constexpr int64_t kNumbers = 256, kBytes = 144;
  static constexpr auto kFormat = groups(4, 32, true);
  static int32_t integer(const Byte* b, int64_t i) { return quarter_nibble(b + 16, i); }
};
struct Q5_K : SixBitScales {
  static constexpr uint32_t kType = 13;
  static constexpr int64_t kNumbers = 256, kBytes = 176;
  static constexpr auto kFormat = groups(8, 32, true);
  static int32_t integer(const Byte* b, int64_t i) {
    const int32_t high = b[16 + i % 32] >> (i / 32) & 1;
    return quarter_nibble(b + 48, i) | high << 4;
  }
};
struct Q6_K {
  static constexpr uint32_t kType = 14;
  static constexpr int64_t kNumbers = 256, kBytes = 210;
  static constexpr auto kFormat = groups(8, 16);
  static float scale(const Byte* b, int64_t i) {
    return half(b + 208) * static_cast<float>(static_cast<int8_t>(b[192 + i / 16]));
  }
  static int32_t integer(const Byte* b, int64_t i) {
    const int64_t part = i % 128 / 32;
    const int32_t low = b[i / 128 * 64 + part % 2 * 32 + i % 32] >> (part < 2 ? 0 : 4) & 15;
    const int32_t high = b[128 + i / 128 * 32 + i % 32] >> (2 * part) & 3;
    return (low | high << 4) - 32;
  }
};

constexpr std::array<int8_t, 16> kIq4 = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};
struct Iq4Nl {
  static constexpr uint32_t kType = 20;
  static constexpr int64_t kNumbers = 32, kBytes = 18;
  static constexpr auto kFormat = groups(8, 32);
  static float scale(const Byte* b, int64_t) { return half(b); }
  static int32_t integer(const Byte* b, int64_t i) {
    return kIq4[static_cast<size_t>(nibble(b + 2, i))];
  }
};
struct Iq4Xs {
  static constexpr uint32_t kType = 23;
  static constexpr int64_t kNumbers = 256, kBytes = 136;
  static constexpr auto kFormat = groups(8, 32);
  static float scale(const Byte* b, int64_t i) {
    const int64_t part = i / 32;
    const int32_t low = b[4 + part / 2] >> (part % 2 * 4) & 15;
    const int32_t high = (b[2] | b[3] << 8) >> (2 * part) & 3;
    return half(b) * static_cast<float>((low | high << 4) - 32);
  }
  static int32_t integer(const Byte* b, int64_t i) {
    return kIq4[static_cast<size_t>(nibble(b + 8 + i / 32 * 16, i % 32))];
  }
};
struct Mxfp4 {
  static constexpr uint32_t kType = 39;
  static constexpr int64_t kNumbers = 32, kBytes = 17;
  static constexpr auto kFormat = kernels::kMxfp4;
  static float scale(const Byte* b, int64_t) { return power_of_two(b[0] - 128); }
  static uint8_t bits(const Byte* b, int64_t i) { return static_cast<uint8_t>(nibble(b + 1, i)); }
  static int32_t integer(const Byte* b, int64_t i) { return twice_e2m1(bits(b, i)); }
};

template <class B>
class Blocks final : public EncodingOf<Blocks<B>> {
 public:
  Blocks(std::span<const std::byte> data, int64_t cols)
      : data_(reinterpret_cast<const Byte*>(data.data())), blocks_(cols / B::kNumbers) {}

  float at(int64_t row, int64_t col) const {
    const Byte* b = block(row, col);
    const int64_t i = col % B::kNumbers;
    return B::scale(b, i) * static_cast<float>(B::integer(b, i)) - minimum(b, i);
  }
  std::optional<kernels::WeightFormat> format() const override { return B::kFormat; }
  uint8_t code(int64_t row, int64_t col) const override {
    if constexpr (kIsMxfp4) return B::bits(block(row, col), col % B::kNumbers);
    return static_cast<uint8_t>(B::integer(block(row, col), col % B::kNumbers) + kZero);
  }
  CodeGroup group(int64_t row, int64_t group) const override {
    const int64_t col = group * B::kFormat.group, i = col % B::kNumbers;
    const Byte* b = block(row, col);
    if constexpr (kIsMxfp4) return {2 * B::scale(b, i)};
    return {B::scale(b, i), kZero, minimum(b, i)};
  }

 private:
  static constexpr bool kIsMxfp4 = B::kFormat == kernels::kMxfp4;
  static constexpr int32_t kZero = B::kFormat.minima ? 0 : B::kFormat.default_zero();
  static float minimum(const Byte* b, int64_t i) {
    if constexpr (B::kFormat.minima) return B::minimum(b, i);
    return 0;
  }
  const Byte* block(int64_t row, int64_t col) const {
    return data_ + (row * blocks_ + col / B::kNumbers) * B::kBytes;
  }
  const Byte* data_;
  const int64_t blocks_;  // per row
};

// Calls f(std::type_identity<block>) for the block of `type`, if known.
template <class F>
void with_block(uint32_t type, const F& f) {
  const auto any = [&]<class... B>(std::type_identity<B>... b) {
    return ((B::kType == type && (f(b), true)) || ...);
  };
  any(std::type_identity<Q4_0>(), std::type_identity<Q4_1>(), std::type_identity<Q5_0>(),
      std::type_identity<Q5_1>(), std::type_identity<Q8_0>(), std::type_identity<Q2_K>(),
      std::type_identity<Q3_K>(), std::type_identity<Q4_K>(), std::type_identity<Q5_K>(),
      std::type_identity<Q6_K>(), std::type_identity<Iq4Nl>(), std::type_identity<Iq4Xs>(),
      std::type_identity<Mxfp4>());
}

}  // namespace

GgmlBlock ggml_block(uint32_t type) {
  GgmlBlock out;
  with_block(type, [&]<class B>(std::type_identity<B>) { out = {B::kNumbers, B::kBytes}; });
  return out;
}

std::shared_ptr<const Encoding> ggml_blocks(uint32_t type, std::span<const std::byte> data,
                                            int64_t cols) {
  std::shared_ptr<const Encoding> out;
  with_block(
      type, [&]<class B>(std::type_identity<B>) { out = std::make_shared<Blocks<B>>(data, cols); });
  NEREID_CHECK(out);
  return out;
}

}  // namespace nereid::io
