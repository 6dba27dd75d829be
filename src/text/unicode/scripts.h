// Unicode scripts (the Script property, through PCRE2's tables).
#pragma once

#include <string_view>

namespace nereid::text {

inline constexpr int kAnyScript = -1;

// True for the names of scripts in regular expressions, such as "Han".
bool is_script_name(std::string_view name);

// A number for the script of `c`. Hiragana, Katakana and U+30FC count as Han, as in SentencePiece;
// kAnyScript is a space or a character without a script.
int script_of(char32_t c);

}  // namespace nereid::text
