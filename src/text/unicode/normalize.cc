#include "text/unicode/normalize.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "text/unicode/utf8.h"

namespace nereid::text {

namespace {

utf8proc_option_t options_of(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    case NormalForm::kNfd:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    case NormalForm::kNfkc:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case NormalForm::kNfkd:
      break;
  }
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
}

Status append_form(NormalForm form, std::string_view part, std::string& out) {
  utf8proc_uint8_t* raw = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(part.data()),
                   static_cast<utf8proc_ssize_t>(part.size()), &raw, options_of(form));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(raw, std::free);
  if (size < 0) {
    return resource_exhausted("normalising {} bytes of text: {}", part.size(),
                              utf8proc_errmsg(size));
  }
  out.append(reinterpret_cast<const char*>(raw), static_cast<size_t>(size));
  return ok();
}

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

// Characters that NFC does not change and that do not combine with the previous one.
bool is_composed(char32_t c) {
  return c < 0x300 || (c >= 0x400 && c < 0x483) || (c >= 0x2010 && c < 0x2060) ||
         (c >= 0x3001 && c < 0x302A) || (c >= 0x3041 && c < 0x3097) ||
         (c >= 0x30A1 && c < 0x30FF) || (c >= 0x3400 && c < 0xA000) ||
         (c >= 0xAC00 && c < 0xD7A4) || (c >= 0xFF01 && c < 0xFFEF);
}

bool is_composed(std::string_view text) {
  while (!text.empty()) {
    if (is_ascii(text[0])) {
      text.remove_prefix(1);
      continue;
    }
    const Utf8Step step = utf8_step(text);
    if (!is_composed(step.code)) return false;
    text.remove_prefix(step.length);
  }
  return true;
}

}  // namespace

// ASCII characters are starters that do not combine with the previous character: only runs of other
// characters, with the character before, go through the tables.
Status normalize_unicode(NormalForm form, std::string& text) {
  if (form == NormalForm::kNfc && is_composed(text)) return ok();
  std::string out;
  out.reserve(text.size());
  const std::string_view all = text;
  size_t at = 0;
  while (at < all.size()) {
    size_t run = at;
    while (run < all.size() && is_ascii(all[run])) ++run;
    if (run == all.size()) {
      out += all.substr(at);
      break;
    }
    const size_t first = run > at ? run - 1 : run;
    size_t end = run;
    while (end < all.size() && !is_ascii(all[end])) ++end;
    out += all.substr(at, first - at);
    RETURN_IF_ERROR(append_form(form, all.substr(first, end - first), out));
    at = end;
  }
  text = std::move(out);
  return ok();
}

void append_lower_case(std::string& out, char32_t c) {
  if (c == 0x130) {  // the only character whose lower case is two
    out += "i\xCC\x87";
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

size_t grapheme_length(std::string_view text) {
  Utf8Step step = utf8_step(text);
  size_t at = step.length;
  utf8proc_int32_t state = 0;
  while (at < text.size()) {
    const char32_t before = step.code;
    step = utf8_step(text.substr(at));
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before),
                                         static_cast<utf8proc_int32_t>(step.code), &state)) {
      break;
    }
    at += step.length;
  }
  return at;
}

}  // namespace nereid::text
