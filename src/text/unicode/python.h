// Character properties and case mapping of Python's str, from utf8proc's tables: templates are
// written for Python.
#pragma once

#include <string>
#include <string_view>

namespace nereid::text::python {

// White space and the four information separators, as in strip(), split() and \s.
bool is_space(char32_t c);
bool is_alpha(char32_t c);    // L*
bool is_decimal(char32_t c);  // Nd
bool is_digit(char32_t c);    // Nd and digits with a form of their own, such as superscripts
bool is_numeric(char32_t c);  // N*
bool is_alnum(char32_t c);    // L* and N*; with the underscore: \w
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);      // Lt: an upper and a lower case letter in one
bool is_cased(char32_t c);      // one of the three
bool is_printable(char32_t c);  // repr() does not escape it

// The full mapping, to up to three characters.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title(std::string_view text);
std::string capitalize(std::string_view text);
// Appends `c` as the first letter of a word.
void append_title_case(std::string& out, char32_t c);

}  // namespace nereid::text::python
