#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/unicode/scripts.h"

#include <pcre2.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "base/check.h"
#include "text/unicode/utf8.h"

namespace nereid::text {

namespace {

// Sorted, for binary search.
constexpr std::string_view kScripts[] = {
    "Adlam",
    "Ahom",
    "AnatolianHieroglyphs",
    "Arabic",
    "Armenian",
    "Avestan",
    "Balinese",
    "Bamum",
    "BassaVah",
    "Batak",
    "Bengali",
    "Bhaiksuki",
    "Bopomofo",
    "Brahmi",
    "Braille",
    "Buginese",
    "Buhid",
    "CanadianAboriginal",
    "Carian",
    "CaucasianAlbanian",
    "Chakma",
    "Cham",
    "Cherokee",
    "Common",
    "Coptic",
    "Cuneiform",
    "Cypriot",
    "Cyrillic",
    "Deseret",
    "Devanagari",
    "Duployan",
    "EgyptianHieroglyphs",
    "Elbasan",
    "Ethiopic",
    "Georgian",
    "Glagolitic",
    "Gothic",
    "Grantha",
    "Greek",
    "Gujarati",
    "Gurmukhi",
    "Han",
    "Hangul",
    "Hanunoo",
    "Hatran",
    "Hebrew",
    "Hiragana",
    "ImperialAramaic",
    "Inherited",
    "InscriptionalPahlavi",
    "InscriptionalParthian",
    "Javanese",
    "Kaithi",
    "Kannada",
    "Katakana",
    "KayahLi",
    "Kharoshthi",
    "Khmer",
    "Khojki",
    "Khudawadi",
    "Lao",
    "Latin",
    "Lepcha",
    "Limbu",
    "LinearA",
    "LinearB",
    "Lisu",
    "Lycian",
    "Lydian",
    "Mahajani",
    "Malayalam",
    "Mandaic",
    "Manichaean",
    "Marchen",
    "MeeteiMayek",
    "MendeKikakui",
    "MeroiticCursive",
    "MeroiticHieroglyphs",
    "Miao",
    "Modi",
    "Mongolian",
    "Mro",
    "Multani",
    "Myanmar",
    "Nabataean",
    "NewTaiLue",
    "Newa",
    "Nko",
    "Ogham",
    "OlChiki",
    "OldHungarian",
    "OldItalic",
    "OldNorthArabian",
    "OldPermic",
    "OldPersian",
    "OldSouthArabian",
    "OldTurkic",
    "Oriya",
    "Osage",
    "Osmanya",
    "PahawhHmong",
    "Palmyrene",
    "PauCinHau",
    "PhagsPa",
    "Phoenician",
    "PsalterPahlavi",
    "Rejang",
    "Runic",
    "Samaritan",
    "Saurashtra",
    "Sharada",
    "Shavian",
    "Siddham",
    "SignWriting",
    "Sinhala",
    "SoraSompeng",
    "Sundanese",
    "SylotiNagri",
    "Syriac",
    "Tagalog",
    "Tagbanwa",
    "TaiLe",
    "TaiTham",
    "TaiViet",
    "Takri",
    "Tamil",
    "Tangut",
    "Telugu",
    "Thaana",
    "Thai",
    "Tibetan",
    "Tifinagh",
    "Tirhuta",
    "Ugaritic",
    "Vai",
    "WarangCiti",
    "Yi",
};

struct ScriptRange {
  char32_t first;  // up to the first of the next range
  int script;
};

int index_of(std::string_view name) {
  const auto* found = std::lower_bound(std::begin(kScripts), std::end(kScripts), name);
  const bool there = found != std::end(kScripts) && *found == name;
  return there ? static_cast<int>(found - std::begin(kScripts)) : kAnyScript;
}

// One pass over all characters with one alternative for each script; the matching
// alternative sets the mark.
std::vector<ScriptRange> list_ranges() {
  std::string pattern = "\\p{sc:Unknown}+", all;
  for (const std::string_view name : kScripts) {
    pattern += "|\\p{sc:";
    pattern += name;
    pattern += "}+(*MARK:";
    pattern += name;
    pattern += ")";
  }
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c < 0xD800 || c > 0xDFFF) append_utf8(all, c);
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF, &error, &offset, nullptr);
  NEREID_CHECK(code != nullptr);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  std::vector<ScriptRange> ranges = {{0, kAnyScript}};
  const auto* text = reinterpret_cast<PCRE2_SPTR>(all.data());
  for (PCRE2_SIZE at = 0; at < all.size();) {
    if (pcre2_match(code, text, all.size(), at, PCRE2_NO_UTF_CHECK, data, nullptr) < 0) break;
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(data);
    const auto* mark = reinterpret_cast<const char*>(pcre2_get_mark(data));
    const auto code_at = [&](size_t i) { return utf8_step(std::string_view(all).substr(i)).code; };
    if (span[0] > at) ranges.push_back({code_at(at), kAnyScript});
    ranges.push_back({code_at(span[0]), mark == nullptr ? kAnyScript : index_of(mark)});
    at = span[1];
    if (at < all.size()) ranges.push_back({code_at(at), kAnyScript});
  }
  pcre2_match_data_free(data);
  pcre2_code_free(code);
  return ranges;
}

}  // namespace

bool is_script_name(std::string_view name) { return index_of(name) != kAnyScript; }

int script_of(char32_t c) {
  static const std::vector<ScriptRange> ranges = list_ranges();
  static const int han = index_of("Han"), hiragana = index_of("Hiragana");
  static const int katakana = index_of("Katakana");
  if (c == 0x30FC) return han;
  if (c == ' ') return kAnyScript;
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), c,
                       [](char32_t code, const ScriptRange& range) { return code < range.first; });
  const int script = std::prev(after)->script;
  return script == hiragana || script == katakana ? han : script;
}

}  // namespace nereid::text
