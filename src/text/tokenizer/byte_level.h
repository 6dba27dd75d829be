// The byte-level alphabet (GPT-2): every byte as a printable character, and back.
#pragma once

#include <string>
#include <string_view>

namespace nereid::text {

// Appends the letters of `bytes`.
void append_byte_letters(std::string_view bytes, std::string& out);

// Appends the bytes spelled by `token`; false when a character is outside the alphabet.
bool append_bytes_of_letters(std::string_view token, std::string& out);

// The bytes spelled by `token`. A token with any character outside the alphabet is returned as it
// is, like in the reference decoder.
std::string letters_to_bytes(std::string_view token);

}  // namespace nereid::text
