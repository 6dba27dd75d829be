// Unicode character classes and simple case mapping (one code point to one), independent of
// the process locale.
#pragma once

namespace nereid::text {

// The White_Space property.
bool is_space(char32_t c);
bool is_alpha(char32_t c);
bool is_digit(char32_t c);  // ASCII 0-9
bool is_alnum(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
char32_t to_upper(char32_t c);
char32_t to_lower(char32_t c);

}  // namespace nereid::text
