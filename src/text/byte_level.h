// The byte-level alphabet (GPT-2): every byte as a printable character, and back.
#pragma once

#include <string>
#include <string_view>

namespace nereid::text {

// Appends the letters of `bytes`.
void append_byte_letters(std::string_view bytes, std::string& out);

// Appends the bytes that `token` spells; false when a character is outside the alphabet.
bool append_bytes_of_letters(std::string_view token, std::string& out);

// The bytes that `token` spells. A token with any character outside the alphabet stands for itself,
// as in the reference decoder.
std::string letters_to_bytes(std::string_view token);

}  // namespace nereid::text
