#include "text/unicode/python.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "text/unicode/chars.h"
#include "text/unicode/normalize.h"
#include "text/unicode/utf8.h"

namespace nereid::text::python {

namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

struct Expansion {
  char32_t from;
  char32_t to[3];  // ends with 0
};

// SpecialCasing.txt: characters whose upper case is more than one, in order,
// without U+1F80 to U+1FAF.
constexpr Expansion kUpper[] = {
    {0xDF, {0x53, 0x53}},
    {0x149, {0x2BC, 0x4E}},
    {0x1F0, {0x4A, 0x30C}},
    {0x390, {0x399, 0x308, 0x301}},
    {0x3B0, {0x3A5, 0x308, 0x301}},
    {0x587, {0x535, 0x552}},
    {0x1E96, {0x48, 0x331}},
    {0x1E97, {0x54, 0x308}},
    {0x1E98, {0x57, 0x30A}},
    {0x1E99, {0x59, 0x30A}},
    {0x1E9A, {0x41, 0x2BE}},
    {0x1F50, {0x3A5, 0x313}},
    {0x1F52, {0x3A5, 0x313, 0x300}},
    {0x1F54, {0x3A5, 0x313, 0x301}},
    {0x1F56, {0x3A5, 0x313, 0x342}},
    {0x1FB2, {0x1FBA, 0x399}},
    {0x1FB3, {0x391, 0x399}},
    {0x1FB4, {0x386, 0x399}},
    {0x1FB6, {0x391, 0x342}},
    {0x1FB7, {0x391, 0x342, 0x399}},
    {0x1FBC, {0x391, 0x399}},
    {0x1FC2, {0x1FCA, 0x399}},
    {0x1FC3, {0x397, 0x399}},
    {0x1FC4, {0x389, 0x399}},
    {0x1FC6, {0x397, 0x342}},
    {0x1FC7, {0x397, 0x342, 0x399}},
    {0x1FCC, {0x397, 0x399}},
    {0x1FD2, {0x399, 0x308, 0x300}},
    {0x1FD3, {0x399, 0x308, 0x301}},
    {0x1FD6, {0x399, 0x342}},
    {0x1FD7, {0x399, 0x308, 0x342}},
    {0x1FE2, {0x3A5, 0x308, 0x300}},
    {0x1FE3, {0x3A5, 0x308, 0x301}},
    {0x1FE4, {0x3A1, 0x313}},
    {0x1FE6, {0x3A5, 0x342}},
    {0x1FE7, {0x3A5, 0x308, 0x342}},
    {0x1FF2, {0x1FFA, 0x399}},
    {0x1FF3, {0x3A9, 0x399}},
    {0x1FF4, {0x38F, 0x399}},
    {0x1FF6, {0x3A9, 0x342}},
    {0x1FF7, {0x3A9, 0x342, 0x399}},
    {0x1FFC, {0x3A9, 0x399}},
    {0xFB00, {0x46, 0x46}},
    {0xFB01, {0x46, 0x49}},
    {0xFB02, {0x46, 0x4C}},
    {0xFB03, {0x46, 0x46, 0x49}},
    {0xFB04, {0x46, 0x46, 0x4C}},
    {0xFB05, {0x53, 0x54}},
    {0xFB06, {0x53, 0x54}},
    {0xFB13, {0x544, 0x546}},
    {0xFB14, {0x544, 0x535}},
    {0xFB15, {0x544, 0x53B}},
    {0xFB16, {0x54E, 0x546}},
    {0xFB17, {0x544, 0x53D}},
};

// The exceptions whose title case is not an upper case letter followed by lower case ones.
constexpr Expansion kTitle[] = {{0xDF, {0x53, 0x73}},
                                {0x149, {0x2BC, 0x4E}},
                                {0x1FB7, {0x391, 0x342, 0x345}},
                                {0x1FC7, {0x397, 0x342, 0x345}},
                                {0x1FF7, {0x3A9, 0x342, 0x345}}};

template <size_t N>
const Expansion* find(const Expansion (&table)[N], char32_t c) {
  const auto* at =
      std::lower_bound(std::begin(table), std::end(table), c,
                       [](const Expansion& entry, char32_t value) { return entry.from < value; });
  return at != std::end(table) && at->from == c ? at : nullptr;
}

void append_upper(std::string& out, char32_t c) {
  if (c >= 0x1F80 && c <= 0x1FAF) {  // with a capital iota behind
    constexpr char32_t kPlain[] = {0x1F08, 0x1F28, 0x1F68};
    append_utf8(out, kPlain[(c - 0x1F80) / 16] + c % 8);
    append_utf8(out, 0x399);
  } else if (const Expansion* found = find(kUpper, c)) {
    for (const char32_t to : found->to) {
      if (to != 0) append_utf8(out, to);
    }
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

// Characters that do not end a word for the rule of the final sigma.
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x387 || c == 0x2018 ||
             c == 0x2019 || c == 0x2024 || c == 0x2027;
  }
}

bool cased_letter_begins(std::string_view rest) {
  while (!rest.empty()) {
    const Utf8Step step = utf8_step(rest);
    if (!is_case_ignorable(step.code)) return is_cased(step.code);
    rest.remove_prefix(step.length);
  }
  return false;
}

// Appends the lower case of the character at text[at]; `after_cased`: a cased one precedes it.
void append_lower(std::string& out, char32_t c, bool after_cased, std::string_view rest) {
  constexpr char32_t kSigma = 0x3A3, kFinalSigma = 0x3C2;
  if (c == kSigma && after_cased && !cased_letter_begins(rest)) {
    append_utf8(out, kFinalSigma);
  } else {
    append_lower_case(out, c);
  }
}

// Lower case, except for the first characters of words: those for which
// `is_first(previous)` is true.
template <class IsFirst>
std::string map_case(std::string_view text, IsFirst is_first) {
  std::string out;
  out.reserve(text.size());
  bool after_cased = false;  // ignorable characters between are skipped
  bool begins = true, previous_cased = false;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    text.remove_prefix(step.length);
    if (is_first(begins, previous_cased)) {
      append_title_case(out, step.code);
    } else {
      append_lower(out, step.code, after_cased, text);
    }
    begins = false;
    previous_cased = is_cased(step.code);
    if (!is_case_ignorable(step.code)) after_cased = previous_cased;
  }
  return out;
}

}  // namespace

bool is_space(char32_t c) { return text::is_space(c) || (c >= 0x1C && c <= 0x1F); }

bool is_alpha(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) {
  static constexpr std::pair<char32_t, char32_t> kRanges[] = {
      {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
      {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
      {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
      {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
      {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
  return is_decimal(c) ||
         std::any_of(std::begin(kRanges), std::end(kRanges),
                     [c](const auto& range) { return c >= range.first && c <= range.second; });
}

bool is_numeric(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }

bool is_upper(char32_t c) { return text::is_upper(c) && !is_title(c); }

bool is_lower(char32_t c) { return text::is_lower(c) && !is_title(c); }

bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

bool is_printable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

void append_title_case(std::string& out, char32_t c) {
  const Expansion* title = find(kTitle, c);
  const Expansion* upper = find(kUpper, c);
  const char32_t simple = static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
  if (title != nullptr) {
    for (const char32_t to : title->to) {
      if (to != 0) append_utf8(out, to);
    }
  } else if (upper == nullptr || simple != c || is_title(c)) {
    append_utf8(out, simple);
  } else {
    append_utf8(out, upper->to[0]);
    for (const char32_t to : {upper->to[1], upper->to[2]}) {
      if (to == 0x399) {
        append_utf8(out, 0x345);
      } else if (to != 0) {
        append_lower_case(out, to);
      }
    }
  }
}

std::string upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    append_upper(out, step.code);
    text.remove_prefix(step.length);
  }
  return out;
}

std::string lower(std::string_view text) {
  return map_case(text, [](bool, bool) { return false; });
}

std::string title(std::string_view text) {
  return map_case(text, [](bool, bool previous_cased) { return !previous_cased; });
}

std::string capitalize(std::string_view text) {
  return map_case(text, [](bool begins, bool) { return begins; });
}

}  // namespace nereid::text::python
