// Classes of characters for grammar masks: a whole subtree of the vocabulary can be accepted
// without visiting each token; see TokenTrie::Node and CharRuns.
#pragma once

#include <cstdint>

namespace nereid::text {

// Classes of characters that most grammars treat alike, one bit each.
using CharKinds = uint16_t;
inline constexpr CharKinds kLower = 1, kUpper = 2, kDigit = 4, kSpace = 8, kQuote = 16,
                           kBackslash = 32, kControl = 64, kOtherAscii = 128,
                           kWide = 256,  // characters of several bytes
    kBroken = 512;                       // bytes that are no UTF-8
inline constexpr int kNumCharKinds = 9;  // kBroken excluded: no grammar text contains it

constexpr CharKinds kind_of_ascii(uint8_t byte) {
  if (byte >= 'a' && byte <= 'z') return kLower;
  if (byte >= 'A' && byte <= 'Z') return kUpper;
  if (byte >= '0' && byte <= '9') return kDigit;
  if (byte == ' ') return kSpace;
  if (byte == '"') return kQuote;
  if (byte == '\\') return kBackslash;
  return byte < 0x20 || byte == 0x7F ? kControl : kOtherAscii;
}

// A position in UTF-8 text: between two characters, or the allowed next bytes of one
// (Unicode, table 3-7).
enum class Utf8Place : uint8_t {
  kBetween,
  kOneMore,
  kTwoMore,
  kThreeMore,
  kBehindE0,
  kBehindED,
  kBehindF0,
  kBehindF4,
  kBroken
};

constexpr Utf8Place next_place(Utf8Place place, uint8_t byte) {
  const auto within = [byte](uint8_t low, uint8_t high, Utf8Place next) {
    return byte >= low && byte <= high ? next : Utf8Place::kBroken;
  };
  switch (place) {
    case Utf8Place::kBetween:
      if (byte < 0x80) return Utf8Place::kBetween;
      if (byte == 0xE0) return Utf8Place::kBehindE0;
      if (byte == 0xED) return Utf8Place::kBehindED;
      if (byte == 0xF0) return Utf8Place::kBehindF0;
      if (byte == 0xF4) return Utf8Place::kBehindF4;
      if (byte >= 0xF1) return within(0xF1, 0xF3, Utf8Place::kThreeMore);
      return byte >= 0xE1 ? Utf8Place::kTwoMore : within(0xC2, 0xDF, Utf8Place::kOneMore);
    case Utf8Place::kOneMore:
      return within(0x80, 0xBF, Utf8Place::kBetween);
    case Utf8Place::kTwoMore:
      return within(0x80, 0xBF, Utf8Place::kOneMore);
    case Utf8Place::kThreeMore:
      return within(0x80, 0xBF, Utf8Place::kTwoMore);
    case Utf8Place::kBehindE0:
      return within(0xA0, 0xBF, Utf8Place::kOneMore);
    case Utf8Place::kBehindED:
      return within(0x80, 0x9F, Utf8Place::kOneMore);
    case Utf8Place::kBehindF0:
      return within(0x90, 0xBF, Utf8Place::kTwoMore);
    case Utf8Place::kBehindF4:
      return within(0x80, 0x8F, Utf8Place::kTwoMore);
    case Utf8Place::kBroken:
      break;
  }
  return Utf8Place::kBroken;
}

}  // namespace nereid::text
