#include "text/tokenizer/word_scanner.h"

#include <bit>
#include <cstring>
#include <limits>

#include "text/tokenizer/word_patterns.h"
#include "text/unicode/classes.h"
#include "text/unicode/utf8.h"

namespace nereid::text {

namespace {

struct RuleRow {
  std::string_view pattern;
  WordRule rule;
};

constexpr RuleRow kRules[] = {{kGpt2Pattern, WordRule::kGpt2},
                              {kCl100kPattern, WordRule::kCl100k},
                              {kQwen2Pattern, WordRule::kQwen2},
                              {kO200kPattern, WordRule::kO200k},
                              {kTekkenPattern, WordRule::kTekken}};

// Reads characters of a text by position. At the end the character has no class and no length.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text), classes_(char_classes()) {}

  struct Char {
    char32_t code = 0;
    uint32_t length = 0;
    uint8_t bits = 0;
    bool is(uint8_t wanted) const { return (bits & wanted) != 0; }
    bool is_newline() const { return length == 1 && (code == '\n' || code == '\r'); }
    bool is_other() const { return length > 0 && (bits & (kSpace | kLetter | kNumber)) == 0; }
  };

  size_t size() const { return text_.size(); }

  [[gnu::always_inline]] Char at(size_t i) const {
    if (i >= text_.size()) return {};
    const auto byte = static_cast<uint8_t>(text_[i]);
    if (byte < 0x80) return {byte, 1, classes_[byte]};
    return wide_at(i);
  }

  // The end of the run of ASCII letters at `i`: lower case, or both cases with kFold. It may stop
  // earlier within eight bytes of the text's end.
  template <bool kFold>
  size_t skip_letters(size_t i) const {
    constexpr uint64_t kOnes = 0x0101010101010101, kHigh = 0x80 * kOnes;
    for (; i + 8 <= text_.size(); i += 8) {
      uint64_t bytes;
      std::memcpy(&bytes, text_.data() + i, 8);
      // Without their highest bits no sum of two bytes carries into the next one.
      const uint64_t low = (kFold ? bytes | 0x20 * kOnes : bytes) & ~kHigh;
      const uint64_t from_a = low + (0x80 - 'a') * kOnes, above_z = low + (0x7F - 'z') * kOnes;
      const uint64_t others = ~(from_a & ~above_z & ~bytes) & kHigh;
      if (others != 0) return i + static_cast<size_t>(std::countr_zero(others)) / 8;
    }
    return i;
  }

  // The end of the run of characters with one of `bits` at `i`.
  size_t skip(size_t i, uint8_t bits) const {
    while (true) {
      if (bits == kLetter) i = skip_letters</*kFold=*/true>(i);
      const Char c = at(i);
      if (!c.is(bits)) return i;
      i += c.length;
    }
  }

  size_t skip_other(size_t i) const {
    for (Char c = at(i); c.is_other(); c = at(i)) i += c.length;
    return i;
  }

  // The end of the contraction (without its apostrophe) at `i`, or `i`.
  size_t contraction(size_t i, bool ignore_case) const {
    const auto letter = [&](size_t k) -> char {
      if (k >= text_.size()) return 0;
      const char c = text_[k];
      return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    const char first = letter(i);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return i + 1;
    if (ignore_case && text_.substr(i).starts_with("\xC5\xBF")) return i + 2;  // long s
    const char second = letter(i + 1);
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
        (first == 'l' && second == 'l')) {
      return i + 2;
    }
    return i;
  }

 private:
  // A character of two bytes or more.
  [[gnu::noinline]] Char wide_at(size_t i) const {
    const auto byte = static_cast<uint8_t>(text_[i]);
    const auto low = [&](size_t k) { return static_cast<uint8_t>(text_[i + k]) & 0x3Fu; };
    if (byte < 0xE0) return make((byte & 0x1Fu) << 6 | low(1), 2);
    if (byte < 0xF0) return make((byte & 0x0Fu) << 12 | low(1) << 6 | low(2), 3);
    return make((byte & 0x07u) << 18 | low(1) << 12 | low(2) << 6 | low(3), 4);
  }
  Char make(char32_t code, uint32_t length) const { return {code, length, classes_[code]}; }

  std::string_view text_;
  const uint8_t* classes_;
};

// \s+(?!\S)|\s+ : a run of white space, without its last character when text follows.
size_t space_end(const Reader& text, size_t i) {
  size_t end = i, last = i;
  for (auto c = text.at(end); c.is(kSpace); c = text.at(end)) {
    last = end;
    end += c.length;
  }
  return end == text.size() || last == i ? end : last;
}

// \s*[\r
// ]+ : the end behind the last line break of a run of white space, or `i`.
size_t newline_end(const Reader& text, size_t i) {
  size_t end = i;
  for (auto c = text.at(i); c.is(kSpace); c = text.at(i)) {
    i += c.length;
    if (c.is_newline()) end = i;
  }
  return end;
}

size_t gpt2_end(const Reader& text, size_t i) {
  const auto first = text.at(i);
  if (first.code == '\'') {
    const size_t end = text.contraction(i + 1, /*ignore_case=*/false);
    if (end > i + 1) return end;
  }
  const size_t word = first.code == ' ' ? i + 1 : i;
  const auto c = text.at(word);
  if (c.is(kLetter)) return text.skip(word, kLetter);
  if (c.is(kNumber)) return text.skip(word, kNumber);
  if (c.is_other()) return text.skip_other(word);
  return space_end(text, i);
}

size_t digits_end(const Reader& text, size_t i, int max_digits) {
  for (int count = 0; count < max_digits; ++count) {
    const auto c = text.at(i);
    if (!c.is(kNumber)) break;
    i += c.length;
  }
  return i;
}

//  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ ; with a slash among the line breaks for o200k
size_t symbols_end(const Reader& text, size_t i, bool slash) {
  const size_t word = text.at(i).code == ' ' ? i + 1 : i;
  size_t end = text.skip_other(word);
  if (end > word) {
    for (auto c = text.at(end); c.is_newline() || (slash && c.code == '/'); c = text.at(end)) ++end;
    return end;
  }
  end = newline_end(text, i);
  return end > i ? end : space_end(text, i);
}

size_t cl100k_end(const Reader& text, size_t i, int max_digits) {
  const auto first = text.at(i);
  if (first.is(kLetter)) return text.skip(i + first.length, kLetter);
  if (first.code == '\'') {
    const size_t end = text.contraction(i + 1, /*ignore_case=*/true);
    if (end > i + 1) return end;
  }
  if (first.is(kNumber)) return digits_end(text, i, max_digits);
  if (!first.is_newline() && text.at(i + first.length).is(kLetter)) {
    return text.skip(i + first.length, kLetter);
  }
  return symbols_end(text, i, /*slash=*/false);
}

// o200k's character sets: letters and marks allowed in a word's upper part, and in its lower part.
bool is_upper_part(const Reader::Char& c) {
  return c.is(kMark) || (c.is(kLetter) && !c.is(kLower));
}
bool is_lower_part(const Reader::Char& c) {
  return c.is(kMark) || (c.is(kLetter) && !c.is(kUpper));
}

// UPPER*LOWER+ from `i`, or `i`: backtracks over the longest upper run until a
// lower character follows.
size_t capitalized_end(const Reader& text, size_t i) {
  size_t end = i, give_back = i;
  for (auto c = text.at(end); is_upper_part(c); c = text.at(end)) {
    end += c.length;
    if (is_lower_part(c)) give_back = end;
  }
  const size_t upper = end;
  end = text.skip_letters</*kFold=*/false>(end);
  for (auto c = text.at(end); is_lower_part(c); c = text.at(end)) end += c.length;
  return end > upper ? end : give_back;
}

size_t upper_end(const Reader& text, size_t i) {
  for (auto c = text.at(i); is_upper_part(c); c = text.at(i)) i += c.length;
  return i;
}

size_t o200k_end(const Reader& text, size_t i, int max_digits, bool contractions) {
  const auto first = text.at(i);
  const bool has_prefix = !first.is_newline() && !first.is(kLetter | kNumber);
  const size_t starts[] = {has_prefix ? i + first.length : i, i};
  for (const auto part_end : {capitalized_end, upper_end}) {
    for (const size_t start : starts) {
      const size_t end = part_end(text, start);
      if (end == start) continue;
      if (!contractions || text.at(end).code != '\'') return end;
      const size_t contraction = text.contraction(end + 1, /*ignore_case=*/true);
      return contraction > end + 1 ? contraction : end;
    }
  }
  if (first.is(kNumber)) return digits_end(text, i, max_digits);
  return symbols_end(text, i, /*slash=*/true);
}

// The output of the scanners.
struct Words {
  std::string_view text;
  size_t begin, offset, most;
  std::vector<Span>& out;
};

template <class End>
size_t scan(const Words& words, const End& end_of) {
  const Reader reader(words.text);
  size_t i = words.begin;
  for (size_t count = 0; i < words.text.size() && count < words.most; ++count) {
    const size_t end = end_of(reader, i);
    words.out.push_back({words.offset + i, words.offset + end});
    i = end;
  }
  return i;
}

size_t scan_whitespace_words(const Words& words) {
  const Reader reader(words.text);
  const auto kind_of = [](const Reader::Char& c) {
    return is_word(c.code) ? 1 : c.is(kSpace) ? 0 : 2;
  };
  size_t i = words.begin;
  for (size_t count = 0; i < words.text.size() && count < words.most;) {
    auto c = reader.at(i);
    const int kind = kind_of(c);
    const size_t begin = i;
    do {
      i += c.length;
      c = reader.at(i);
    } while (c.length > 0 && kind_of(c) == kind);
    if (kind == 0) continue;
    words.out.push_back({words.offset + begin, words.offset + i});
    ++count;
  }
  return i;
}

size_t scan(WordRule rule, const Words& words) {
  switch (rule) {
    case WordRule::kGpt2:
      return scan(words, gpt2_end);
    case WordRule::kCl100k:
      return scan(words, [](const Reader& t, size_t i) { return cl100k_end(t, i, 3); });
    case WordRule::kQwen2:
      return scan(words, [](const Reader& t, size_t i) { return cl100k_end(t, i, 1); });
    case WordRule::kO200k:
      return scan(words, [](const Reader& t, size_t i) { return o200k_end(t, i, 3, true); });
    case WordRule::kTekken:
      return scan(words, [](const Reader& t, size_t i) { return o200k_end(t, i, 1, false); });
    case WordRule::kWhitespace:
      return scan_whitespace_words(words);
  }
  return words.text.size();
}

}  // namespace

std::optional<WordRule> word_rule_of(std::string_view pattern) {
  for (const RuleRow& row : kRules) {
    if (row.pattern == pattern) return row.rule;
  }
  return std::nullopt;
}

void scan_words(WordRule rule, std::string_view text, size_t offset, std::vector<Span>& words) {
  scan(rule, {text, 0, offset, std::numeric_limits<size_t>::max(), words});
}

size_t scan_some_words(WordRule rule, std::string_view text, size_t begin, size_t most,
                       std::vector<Span>& words) {
  return scan(rule, {text, begin, 0, most, words});
}

}  // namespace nereid::text
