// Recursive descent over the pattern.
#include "text/grammar/regex_expr.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "text/unicode/utf8.h"

namespace nereid::text {
namespace {

constexpr char32_t kAnyEnd = 0xFFFFFFFF;  // end of the pattern, no character

CharSet digit_chars() { return {'0', '9'}; }
// Line terminators of ECMA-262.
CharSet line_ends() {
  CharSet set('\n', '\n');
  set.add('\r', '\r'), set.add(0x2028, 0x2029);
  return set;
}
CharSet space_chars() {
  CharSet set = line_ends();
  set.add('\t', '\r'), set.add(' ', ' '), set.add(0xA0, 0xA0), set.add(0x1680, 0x1680);
  set.add(0x2000, 0x200A), set.add(0x202F, 0x202F), set.add(0x205F, 0x205F);
  set.add(0x3000, 0x3000), set.add(0xFEFF, 0xFEFF);
  return set;
}

// Adds the other case of ASCII letters.
CharSet with_other_case(const CharSet& set) {
  constexpr char32_t kStep = 'a' - 'A';
  CharSet result = set;
  for (char32_t c = 'A'; c <= 'Z'; ++c) {
    if (set.contains(c)) result.add(c + kStep, c + kStep);
    if (set.contains(c + kStep)) result.add(c, c);
  }
  return result;
}

class RegexParser {
 public:
  RegexParser(std::string_view pattern, const RegexForm& form) : pattern_(pattern), form_(form) {}

  StatusOr<ExprPtr> parse();

 private:
  struct Bounds {
    int32_t least = 1, most = 1;
  };

  Status error(std::string_view reason) const {
    return invalid_argument("regular expression '{}': {} at byte {}", pattern_.substr(0, 200),
                            reason, at_);
  }
  // The next character, without consuming it.
  char32_t peek() const {
    return at_ < pattern_.size() ? utf8_step(pattern_.substr(at_)).code : kAnyEnd;
  }
  char32_t next() {
    const Utf8Step step = utf8_step(pattern_.substr(at_));
    at_ += static_cast<size_t>(step.length);
    return step.code;
  }
  bool take(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  bool more() const { return at_ < pattern_.size(); }
  bool take_start() { return take("^") || take("\\A"); }
  bool take_end() { return take("$") || take("\\Z") || take("\\z"); }
  std::optional<Assertion> take_assertion();

  ExprPtr chars(const CharSet& set) const {
    if (form_.any_case) return one_of(with_other_case(set));
    return form_.json_string ? in_json_string(set) : one_of(set);
  }
  StatusOr<ExprPtr> choices(int depth);
  StatusOr<ExprPtr> parts(int depth);
  StatusOr<ExprPtr> atom(int depth);
  StatusOr<ExprPtr> group(int depth);
  StatusOr<ExprPtr> quantified(ExprPtr part);
  StatusOr<std::optional<Bounds>> bounds();
  StatusOr<CharSet> char_class();
  StatusOr<CharSet> class_item();
  StatusOr<CharSet> escape(bool in_class);
  StatusOr<char32_t> hex(int least, int most);
  StatusOr<std::optional<int32_t>> number();

  const std::string_view pattern_;
  const RegexForm form_;
  size_t at_ = 0;
};

StatusOr<ExprPtr> RegexParser::parse() {
  if (!is_valid_utf8(pattern_)) return invalid_argument("a regular expression is not UTF-8");
  if (form_.any_case && ascii_prefix(pattern_) < pattern_.size())
    return error("letters of any case that are not ASCII, which are not supported,");
  ASSIGN_OR_RETURN(ExprPtr all, choices(0));
  if (more()) return error("')' without '('");
  return all;
}

StatusOr<ExprPtr> RegexParser::choices(int depth) {
  if (depth > kMaxGrammarDepth)
    return error(fmt::format("more than {} groups inside each other", kMaxGrammarDepth));
  std::vector<ExprPtr> all;
  do {
    ASSIGN_OR_RETURN(ExprPtr one, parts(depth));
    all.push_back(std::move(one));
  } while (take("|"));
  return choice(std::move(all));
}

StatusOr<ExprPtr> RegexParser::parts(int depth) {
  const ExprPtr anything =
      form_.anywhere && depth == 0 ? repeat(chars(CharSet::all()), 0, kUnbounded) : nullptr;
  std::vector<ExprPtr> all;
  if (!(depth == 0 && take_start()) && anything) all.push_back(anything);
  while (more() && peek() != '|' && peek() != ')') {
    const size_t begin = at_;
    if (depth == 0 && take_end()) {
      if (!more() || peek() == '|') return sequence(std::move(all));
      if (!form_.assertions) return error("'$' before the end");
      at_ = begin;
    }
    ASSIGN_OR_RETURN(ExprPtr part, atom(depth));
    ASSIGN_OR_RETURN(part, quantified(std::move(part)));
    all.push_back(std::move(part));
  }
  if (anything) all.push_back(anything);
  return sequence(std::move(all));
}

std::optional<Assertion> RegexParser::take_assertion() {
  if (take_start()) return Assertion::kStart;
  if (take_end()) return Assertion::kEnd;
  if (take("\\b")) return Assertion::kWordEdge;
  if (take("\\B")) return Assertion::kNoWordEdge;
  return std::nullopt;
}

StatusOr<ExprPtr> RegexParser::atom(int depth) {
  const size_t begin = at_;
  if (const auto assertion = take_assertion()) {
    if (form_.assertions) return asserted(*assertion);
    at_ = begin;
    return error("an anchor that is not at the start or end of an alternative of the whole");
  }
  switch (const char32_t c = next()) {
    case '(':
      return group(depth);
    case '[': {
      ASSIGN_OR_RETURN(const CharSet set, char_class());
      if (set.empty()) return error("an empty class");
      return chars(set);
    }
    case '.':
      return chars(form_.dot_is_all ? CharSet::all() : CharSet::all().without(line_ends()));
    case '\\': {
      ASSIGN_OR_RETURN(const CharSet set, escape(/*in_class=*/false));
      return chars(set);
    }
    case '*':
    case '+':
    case '?':
      at_ = begin;
      return error("nothing to repeat");
    default:
      return chars({c, c});
  }
}

StatusOr<ExprPtr> RegexParser::group(int depth) {
  if (take("?")) {
    const bool named = take("P<") || (pattern_.substr(at_).starts_with("<") &&
                                      !pattern_.substr(at_).starts_with("<=") &&
                                      !pattern_.substr(at_).starts_with("<!"));
    if (named) {
      const size_t end = pattern_.find('>', at_);
      if (end == std::string_view::npos) return error("a group's name without '>'");
      at_ = end + 1;
    } else if (!take(":")) {
      return error("lookaround and flags, which are not supported,");
    }
  }
  ASSIGN_OR_RETURN(ExprPtr inner, choices(depth + 1));
  if (!take(")")) return error("'(' without ')'");
  return inner;
}

StatusOr<ExprPtr> RegexParser::quantified(ExprPtr part) {
  for (int depth = 0;; ++depth) {
    ASSIGN_OR_RETURN(const std::optional<Bounds> range, bounds());
    if (!range) return part;
    if (depth > 0) return error("a quantifier behind a quantifier");
    part = repeat(std::move(part), range->least, range->most);
    take("?");  // lazy: the same texts
    if (more() && peek() == '+') return error("a possessive quantifier, which is not supported,");
  }
}

StatusOr<std::optional<int32_t>> RegexParser::number() {
  std::optional<int32_t> value;
  while (more() && peek() >= '0' && peek() <= '9') {
    value = value.value_or(0) * 10 + static_cast<int32_t>(next() - '0');
    if (*value > kMaxRegexRepeat)
      return error(fmt::format("a repetition of more than {}", kMaxRegexRepeat));
  }
  return value;
}

// nullopt without a quantifier; a brace that begins none is a literal, as in ECMA-262.
StatusOr<std::optional<RegexParser::Bounds>> RegexParser::bounds() {
  if (take("*")) return Bounds{0, kUnbounded};
  if (take("+")) return Bounds{1, kUnbounded};
  if (take("?")) return Bounds{0, 1};
  const size_t begin = at_;
  if (!take("{")) return std::optional<Bounds>();
  ASSIGN_OR_RETURN(const std::optional<int32_t> least, number());
  const bool comma = take(",");
  std::optional<int32_t> most;
  if (comma) {
    ASSIGN_OR_RETURN(most, number());
  }
  if (!take("}") || !least) {
    at_ = begin;
    // ECMA-262 takes the brace as a literal, Python counts from zero: refused.
    if (!least && most) return error("a quantifier without its lower limit");
    return std::optional<Bounds>();
  }
  if (most && *most < *least) return error("a quantifier whose limits are in the wrong order");
  return Bounds{*least, most ? *most : comma ? kUnbounded : *least};
}

StatusOr<CharSet> RegexParser::char_class() {
  const bool negated = take("^");
  std::vector<std::pair<char32_t, char32_t>> ranges;
  while (!take("]")) {
    if (!more()) return error("'[' without ']'");
    if (pattern_.substr(at_).starts_with("[:") || pattern_.substr(at_).starts_with("&&"))
      return error("a class of another dialect (write '\\[' or '\\&')");
    ASSIGN_OR_RETURN(const CharSet first, class_item());
    const auto rest = pattern_.substr(at_);
    if (!rest.starts_with("-") || rest.starts_with("-]")) {
      ranges.insert(ranges.end(), first.ranges().begin(), first.ranges().end());
      continue;
    }
    take("-");
    if (!more()) return error("'[' without ']'");
    ASSIGN_OR_RETURN(const CharSet last, class_item());
    const auto single = [](const CharSet& s) {
      return s.ranges().size() == 1 && s.ranges()[0].first == s.ranges()[0].second;
    };
    // A class cannot begin a range: three literals, as in ECMA-262.
    if (!single(first) || !single(last)) {
      for (const CharSet& set : {first, CharSet('-', '-'), last})
        ranges.insert(ranges.end(), set.ranges().begin(), set.ranges().end());
      continue;
    }
    if (first.ranges()[0].first > last.ranges()[0].first)
      return error("a range whose ends are no characters in order");
    ranges.emplace_back(first.ranges()[0].first, last.ranges()[0].first);
  }
  std::ranges::sort(ranges);  // so that each is added at the end
  CharSet set;
  for (const auto& [first, last] : ranges) set.add(first, last);
  if (form_.any_case) set = with_other_case(set);
  return negated ? CharSet::all().without(set) : set;
}

StatusOr<CharSet> RegexParser::class_item() {
  if (take("\\")) return escape(/*in_class=*/true);
  const char32_t c = next();
  return CharSet(c, c);
}

StatusOr<CharSet> RegexParser::escape(bool in_class) {
  if (!more()) return error("'\\' at the end");
  const auto one = [](char32_t c) { return CharSet(c, c); };
  const char32_t c = next();
  switch (c) {
    case 'd':
      return digit_chars();
    case 'D':
      return CharSet::all().without(digit_chars());
    case 'w':
      return word_chars();
    case 'W':
      return CharSet::all().without(word_chars());
    case 's':
      return space_chars();
    case 'S':
      return CharSet::all().without(space_chars());
    case 't':
      return one('\t');
    case 'n':
      return one('\n');
    case 'r':
      return one('\r');
    case 'f':
      return one('\f');
    case 'v':
      return one('\v');
    case '0':
      return one(0);
    case 'b':
      if (in_class) return one('\b');
      break;
    case 'c': {
      const char32_t letter = more() ? next() : 0;
      if (const char32_t low = letter | 0x20; low >= 'a' && low <= 'z') return one(low - 'a' + 1);
      return error("'\\c' without a letter");
    }
    case 'x': {
      ASSIGN_OR_RETURN(const char32_t code, hex(2, 2));
      return one(code);
    }
    case 'u': {
      const bool braced = take("{");
      ASSIGN_OR_RETURN(const char32_t code, braced ? hex(1, 6) : hex(4, 4));
      if (braced && !take("}")) return error("'\\u{' without '}'");
      const CharSet set = one(code);
      if (set.empty()) return error("an escape of no character");
      return set;
    }
    default:
      if (c == '_' || !word_chars().contains(c)) return one(c);
  }
  return error("an escape that is not supported");
}

StatusOr<char32_t> RegexParser::hex(int least, int most) {
  char32_t code = 0;
  int count = 0;
  for (; count < most && more(); ++count) {
    const char32_t c = peek();
    const char32_t low = c | 0x20;
    if (c >= '0' && c <= '9')
      code = code * 16 + (c - '0');
    else if (c < 0x80 && low >= 'a' && low <= 'f')
      code = code * 16 + (low - 'a' + 10);
    else
      break;
    next();
  }
  if (count < least) return error("an escape with too few hexadecimal digits");
  return code;
}

}  // namespace

CharSet word_chars() {
  CharSet set('a', 'z');
  set.add('A', 'Z'), set.add('0', '9'), set.add('_', '_');
  return set;
}

StatusOr<ExprPtr> regex_expr(std::string_view pattern, const RegexForm& form) {
  return RegexParser(pattern, form).parse();
}

StatusOr<ExprPtr> text_expr(std::string_view text, const RegexForm& form) {
  std::vector<ExprPtr> parts;
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool letter = (text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z');
    if (text[i] != '\\' && !(letter && form.any_case)) {
      plain += text[i];
      continue;
    }
    size_t length = 1;
    if (text[i] == '\\') {
      length = 2;
      if (text.substr(i + 1).starts_with("x")) length = 4;
      if (text.substr(i + 1).starts_with("u"))
        length = text.substr(i + 2).starts_with("{") ? text.find('}', i) - i + 1 : 6;
    }
    ASSIGN_OR_RETURN(ExprPtr one, regex_expr(text.substr(i, length), form));
    parts.push_back(literal(std::exchange(plain, {})));
    parts.push_back(std::move(one));
    i += std::min(length, text.size() - i) - 1;
  }
  parts.push_back(literal(std::move(plain)));
  return sequence(std::move(parts));
}

ExprPtr in_json_string(const CharSet& chars) {
  // Pairs (character, escape letter).
  constexpr std::string_view kShort = "\"\"\\\\\bb\ff\nn\rr\tt";
  constexpr std::string_view kHex = "0123456789abcdef";
  CharSet escaped(0, 0x1F);
  escaped.add('"', '"'), escaped.add('\\', '\\');
  const CharSet plain = chars.without(escaped), hidden = chars.both(escaped);
  std::vector<ExprPtr> ways;
  if (!plain.empty()) ways.push_back(one_of(plain));
  if (hidden.empty()) return shareable(choice(std::move(ways)));
  // Escapes: letters, and \u00HH by its first digit.
  CharSet letters, low[2];
  for (const auto& [first, last] : hidden.ranges())
    for (char32_t c = first; c <= last; ++c) {
      for (size_t i = 0; i < kShort.size(); i += 2)
        if (static_cast<char32_t>(kShort[i]) == c)
          letters.add(static_cast<char32_t>(kShort[i + 1]), static_cast<char32_t>(kShort[i + 1]));
      const auto digit = static_cast<char32_t>(kHex[c % 16]);
      if (c < 0x20) low[c / 16].add(digit, digit);
    }
  std::vector<ExprPtr> digits, behind;
  for (const size_t high : {size_t{0}, size_t{1}})
    if (!low[high].empty())
      digits.push_back(sequence({literal(std::string(1, kHex[high])), one_of(low[high])}));
  if (!letters.empty()) behind.push_back(one_of(letters));
  if (!digits.empty()) behind.push_back(sequence({literal("u00"), choice(std::move(digits))}));
  ways.push_back(sequence({literal("\\"), choice(std::move(behind))}));
  return shareable(choice(std::move(ways)));
}

}  // namespace nereid::text
