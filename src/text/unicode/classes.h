// General categories of Unicode characters (utf8proc's tables), as the bit sets
// used in word patterns.
#pragma once

#include <cstdint>

namespace nereid::text {

// Bits of char_class().
inline constexpr uint8_t kLetter = 1;     // L*
inline constexpr uint8_t kNumber = 2;     // N*
inline constexpr uint8_t kSpace = 4;      // White_Space
inline constexpr uint8_t kMark = 8;       // M*
inline constexpr uint8_t kUpper = 16;     // Lu, Lt
inline constexpr uint8_t kLower = 32;     // Ll
inline constexpr uint8_t kPunct = 64;     // P*
inline constexpr uint8_t kControl = 128;  // C*: control, format, surrogate, private use, unassigned

// A table by code point, 0x110000 long, made on first use.
const uint8_t* char_classes();
inline uint8_t char_class(char32_t c) { return c < 0x110000 ? char_classes()[c] : kControl; }

// The characters of \w: Alphabetic, marks, decimal digits, connectors and the two joiners.
bool is_word(char32_t c);
bool is_ascii_punctuation(char32_t c);
bool is_nonspacing_mark(char32_t c);  // Mn

}  // namespace nereid::text
