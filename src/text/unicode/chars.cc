#include "text/unicode/chars.h"

#include <locale.h>
#include <wctype.h>

namespace nereid::text {

namespace {

// The locale C.UTF-8, built into glibc; without it only ASCII letters are classified.
locale_t utf8_locale() {
  static const locale_t locale = [] {
    const locale_t found = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    return found != nullptr ? found : newlocale(LC_CTYPE_MASK, "C", nullptr);
  }();
  return locale;
}

wint_t wide(char32_t c) { return static_cast<wint_t>(c); }

}  // namespace

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }

bool is_alpha(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return iswalpha_l(wide(c), utf8_locale()) != 0;
}

bool is_alnum(char32_t c) { return is_digit(c) || is_alpha(c); }

bool is_upper(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return iswupper_l(wide(c), utf8_locale()) != 0;
}

bool is_lower(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return iswlower_l(wide(c), utf8_locale()) != 0;
}

char32_t to_upper(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  return static_cast<char32_t>(towupper_l(wide(c), utf8_locale()));
}

char32_t to_lower(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  return static_cast<char32_t>(towlower_l(wide(c), utf8_locale()));
}

}  // namespace nereid::text
