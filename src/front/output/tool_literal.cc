#include "front/output/tool_literal.h"

#include <charconv>
#include <cmath>

#include "base/blanks.h"
#include "front/http/json_text.h"
#include "text/unicode/utf8.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxNesting = 90;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '.' ||
         c == '-';
}

size_t digits_of(std::string_view text) {
  size_t n = 0;
  while (n < text.size() && is_digit(text[n])) ++n;
  return n;
}

// RFC 8259, "Numbers".
bool is_json_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  const size_t whole = digits_of(text);
  if (whole == 0 || (whole > 1 && text.front() == '0')) return false;
  text.remove_prefix(whole);
  if (text.starts_with('.')) {
    const size_t fraction = digits_of(text.substr(1));
    if (fraction == 0) return false;
    text.remove_prefix(1 + fraction);
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
    const size_t exponent = digits_of(text);
    if (exponent == 0) return false;
    text.remove_prefix(exponent);
  }
  return text.empty();
}

bool is_finite(std::string_view number) {
  double value = 0;
  const auto read = std::from_chars(number.data(), number.data() + number.size(), value);
  // Underflow is zero, as in every parser.
  return read.ec == std::errc()
             ? std::isfinite(value)
             : number.find("e-") != number.npos || number.find("E-") != number.npos;
}

bool is_like_number(std::string_view word) {
  if (word == "NaN" || word == "nan") return true;
  if (word.starts_with('-') || word.starts_with('+')) word.remove_prefix(1);
  if (word == "Infinity" || word == "inf" || word == "Inf") return true;
  if (word.starts_with('.')) word.remove_prefix(1);
  return !word.empty() && is_digit(word.front());
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text::is_valid_utf8(text) ? text : text::repair_utf8(text));
  return out;
}

void JsonMembers::add(std::string key, std::string value) {
  const auto [place, is_new] = places_.try_emplace(key, members_.size());
  if (is_new)
    members_.emplace_back(std::move(key), std::move(value));
  else
    members_[place->second].second = std::move(value);
}

std::string JsonMembers::text() const {
  std::string out = "{";
  for (const auto& [key, value] : members_) {
    if (out.size() > 1) out += ',';
    out += json_string(key);
    out += ':';
    out += value;
  }
  return out += '}';
}

char LiteralReader::peek() {
  while (at_ < text_.size() && kBlanks.find(text_[at_]) != kBlanks.npos) ++at_;
  if (at_ < text_.size()) return text_[at_];
  ran_out_ = true;
  return 0;
}

bool LiteralReader::take(char c) {
  if (peek() != c) return false;
  ++at_;
  return true;
}

bool LiteralReader::take(std::string_view mark) {
  peek();
  if (!rest().starts_with(mark)) {
    ran_out_ |= mark.starts_with(rest());
    return false;
  }
  at_ += mark.size();
  return true;
}

std::string LiteralReader::name() {
  peek();
  const size_t begin = at_;
  while (at_ < text_.size() && is_word(text_[at_])) ++at_;
  ran_out_ |= at_ == text_.size();
  return std::string(text_.substr(begin, at_ - begin));
}

std::optional<std::string> LiteralReader::literal(size_t depth) {
  if (depth > kMaxNesting) return std::nullopt;
  const char c = peek();
  if (c == '"' || c == '\'') {
    const auto text = string();
    return text ? std::optional(json_string(*text)) : std::nullopt;
  }
  if (take('[')) return list(']', depth);
  if (take('(')) return list(')', depth);
  if (take('{')) return dictionary(depth);
  return word();
}

std::optional<std::string> LiteralReader::arguments() {
  const char first = peek();
  std::optional<std::string> value;
  if (first == '"' || first == '\'') {
    const auto text = string();
    if (text) value = object_of(*text);
  } else {
    value = literal();
    if (value == "null" || value == "[]") value = "{}";
  }
  return value && value->starts_with('{') ? value : std::nullopt;
}

std::optional<std::string> LiteralReader::list(char close, size_t depth) {
  std::string out = "[";
  while (!take(close)) {
    const auto item = literal(depth + 1);
    if (!item) return std::nullopt;
    if (out.size() > 1) out += ',';
    out += *item;
    if (!take(',') && peek() != close) return std::nullopt;
  }
  return out += ']';
}

std::optional<std::string> LiteralReader::dictionary(size_t depth) {
  JsonMembers members;
  while (!take('}')) {
    const char quote = peek();
    if (quote != '"' && quote != '\'') return std::nullopt;
    auto key = string();
    if (!key || !take(':')) return std::nullopt;
    auto value = literal(depth + 1);
    if (!value) return std::nullopt;
    members.add(*std::move(key), *std::move(value));
    if (!take(',') && peek() != '}') return std::nullopt;
  }
  return members.text();
}

std::optional<std::string> LiteralReader::word() {
  const size_t begin = at_;
  while (at_ < text_.size() && (is_word(text_[at_]) || text_[at_] == '+')) ++at_;
  ran_out_ |= at_ == text_.size();
  const std::string_view word = text_.substr(begin, at_ - begin);
  if (word == "true" || word == "True") return "true";
  if (word == "false" || word == "False") return "false";
  if (word == "null" || word == "None") return "null";
  std::string number(word.substr(word.starts_with('+') ? 1 : 0));
  if (number.starts_with('.')) number.insert(0, 1, '0');
  if (number.ends_with('.')) number += '0';
  if (is_json_number(number) && is_finite(number)) return number;
  if (is_like_number(word)) return json_string(word);
  at_ = begin;
  return std::nullopt;
}

std::optional<unsigned> LiteralReader::hex(size_t num_digits) {
  unsigned value = 0;
  const std::string_view digits = text_.substr(std::min(at_, text_.size()), num_digits);
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (digits.size() < num_digits || read.ptr != digits.data() + num_digits) return std::nullopt;
  at_ += num_digits;
  return value;
}

// Reads an escape behind a backslash. False: the backslash is literal.
bool LiteralReader::escape(std::string& out) {
  constexpr std::string_view kNames = "ntrbf\\\"'", kMeant = "\n\t\r\b\f\\\"'";
  const char c = text_[at_++];
  const bool is_python = syntax_ == Syntax::kPython;
  if (const size_t i = kNames.find(c); i != kNames.npos) {
    out += kMeant[i];
    return true;
  }
  if (c == '/' && !is_python) return out += c, true;
  if (c == '0' && is_python) return out += '\0', true;
  std::optional<unsigned> code;
  if (c == 'u') code = hex(4);
  if (c == 'U' && is_python) code = hex(8);
  if (c == 'x' && is_python) code = hex(2);
  if (code && *code >= 0xD800 && *code < 0xDC00 && rest().starts_with("\\u")) {
    const size_t behind = at_;
    at_ += 2;
    const auto low = hex(4);
    if (low && *low >= 0xDC00 && *low < 0xE000)
      code = 0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00);
    else
      at_ = behind;
  }
  if (code) {
    text::append_utf8(out, *code);
    return true;
  }
  --at_;
  return false;
}

std::optional<std::string> LiteralReader::string() {
  const size_t begin = at_;
  std::string_view quote = rest().substr(0, 1);
  const std::string_view three = rest().substr(0, 3);
  if (syntax_ == Syntax::kPython && three == std::string(3, quote.front())) quote = three;
  at_ += quote.size();
  std::string out;
  while (at_ < text_.size() && !rest().starts_with(quote)) {
    const char c = text_[at_++];
    if (c != '\\' || at_ == text_.size() || !escape(out)) out += c;
  }
  if (at_ >= text_.size()) {
    ran_out_ = true;
    at_ = begin;
    return std::nullopt;
  }
  at_ += quote.size();
  return out;
}

std::optional<std::string> json_of(std::string_view text) {
  LiteralReader in(text);
  auto out = in.literal();
  return in.peek() == 0 && in.at() == text.size() ? out : std::nullopt;
}

std::optional<std::string> object_of(std::string_view text) {
  if (without_blanks(text).empty()) return "{}";
  auto out = json_of(text);
  return out && out->starts_with('{') ? out : std::nullopt;
}

}  // namespace nereid::front
