#include "text/tokenizer/byte_level.h"

#include <array>
#include <cstdint>

#include "text/unicode/utf8.h"

namespace nereid::text {

namespace {

bool is_printable(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<std::string, 256> letters;
  std::array<int16_t, 0x144> bytes;  // byte by code point; -1 = no letter

  Alphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const char32_t letter = is_printable(byte) ? byte : next++;
      append_utf8(letters[byte], letter);
      bytes[letter] = static_cast<int16_t>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

void append_byte_letters(std::string_view bytes, std::string& out) {
  const Alphabet& table = alphabet();
  for (const char c : bytes) out += table.letters[static_cast<uint8_t>(c)];
}

bool append_bytes_of_letters(std::string_view token, std::string& out) {
  const Alphabet& table = alphabet();
  for (std::string_view rest = token; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    if (step.kind != Utf8Step::kValid || step.code >= table.bytes.size() ||
        table.bytes[step.code] < 0) {
      return false;
    }
    out += static_cast<char>(table.bytes[step.code]);
    rest.remove_prefix(step.length);
  }
  return true;
}

std::string letters_to_bytes(std::string_view token) {
  std::string out;
  return append_bytes_of_letters(token, out) ? out : std::string(token);
}

}  // namespace nereid::text
