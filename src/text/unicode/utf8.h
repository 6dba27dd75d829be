// UTF-8: decoding, lossy repair, and streaming repair for detokenisation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nereid::text {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// One step of decoding at the start of `bytes`.
struct Utf8Step {
  enum Kind : uint8_t {
    kValid,       // `code` is a scalar value of `length` bytes
    kInvalid,     // `length` bytes (at least 1) are a maximal invalid sequence: one U+FFFD
    kIncomplete,  // all `length` remaining bytes begin a character that ends beyond them
  };
  Kind kind = kValid;
  uint32_t length = 0;
  char32_t code = 0;
};

// `bytes` must not be empty. Invalid sequences are divided as the Unicode standard recommends
// ("substitution of maximal subparts"), and as in Rust's lossy conversion.
Utf8Step utf8_step_wide(std::string_view bytes);  // for any first byte
inline Utf8Step utf8_step(std::string_view bytes) {
  const auto first = static_cast<uint8_t>(bytes[0]);
  if (first < 0x80) return {Utf8Step::kValid, 1, first};
  return utf8_step_wide(bytes);
}

// The number of ASCII bytes at the start of `bytes`.
size_t ascii_prefix(std::string_view bytes);

bool is_valid_utf8(std::string_view bytes);

// The last character of non-empty valid UTF-8 and the offset of its first byte.
struct Utf8Last {
  char32_t code;
  size_t offset;
};
Utf8Last utf8_last(std::string_view text);

// Appends `code`; surrogates and values above U+10FFFF become U+FFFD.
void append_utf8(std::string& out, char32_t code);

// `bytes` with every maximal invalid sequence replaced by U+FFFD.
std::string repair_utf8(std::string_view bytes);

// repair_utf8() over a stream: pieces of output, joined, equal repair_utf8 of all input joined, and
// no piece ends inside a character.
class Utf8Stream {
 public:
  void push(std::string_view bytes, std::string& out);
  // Ends the stream: an incomplete character becomes U+FFFD. The object is then in
  // its initial state.
  void finish(std::string& out);

 private:
  std::string pending_;  // at most 3 bytes
};

// Length of valid UTF-8 in code points.
size_t utf8_length(std::string_view text);

}  // namespace nereid::text
