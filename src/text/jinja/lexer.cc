#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "text/jinja/budget.h"
#include "text/jinja/strings.h"
#include "text/unicode/chars.h"
#include "text/unicode/python.h"
#include "text/unicode/utf8.h"

namespace nereid::text::jinja {

namespace {

// A token becomes up to 300 bytes of the tree.
constexpr size_t kMaxTokens = 400'000;

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_name_start(char c) {
  return is_alpha(static_cast<uint8_t>(c) & 0x7F) || c == '_' || static_cast<uint8_t>(c) >= 0x80;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) next_tag();
    add(Token::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string message) {
    count();
    throw Error{std::move(message), line_, false, column_};
  }

  // Counts lines and columns up to `at_`, which never decreases.
  void count() {
    for (; counted_ < at_; ++counted_) {
      const auto c = static_cast<uint8_t>(source_[counted_]);
      if (c == '\n') {
        ++line_;
        column_ = 1;
      } else if ((c & 0xC0) != 0x80) {
        ++column_;
      }
    }
  }

  void add(Token::Kind kind, std::string_view text) {
    if (tokens_.size() == kMaxTokens) {
      fail(fmt::format("template has more than {} tokens", kMaxTokens));
    }
    count();
    tokens_.push_back({kind, std::string(text), line_, column_});
  }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool looking_at(std::string_view text) const { return rest().starts_with(text); }

  void skip_space() {
    while (at_ < source_.size()) {
      const Utf8Step step = utf8_step(rest());
      if (!python::is_space(step.code)) return;
      at_ += step.length;
    }
  }

  // The text before a tag, with the white space removed that the tag's sign or lstrip_blocks takes.
  void add_text(std::string_view text, char sign, bool is_print) {
    if (sign == '-') {
      size_t size = text.size();
      while (size > 0) {
        size_t last = size - 1;
        while (last > 0 && (static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
        if (!python::is_space(utf8_step(text.substr(last, size - last)).code)) break;
        size = last;
      }
      text = text.substr(0, size);
    } else if (sign != '+' && !is_print) {
      const size_t newline = text.rfind('\n');
      const size_t start = newline == text.npos ? 0 : newline + 1;
      const bool blank =
          strip(text.substr(start), std::nullopt, /*left=*/true, /*right=*/false).empty();
      if (blank && (start > 0 || line_starting_)) text = text.substr(0, start);
    }
    if (!text.empty()) add(Token::kText, text);
  }

  // Moves behind the end of a tag whose closing characters are at `at_` ("%}" or "#}").
  void finish_block(char sign) {
    at_ += 2;
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && looking_at("\n")) {
      ++at_;
    }
    line_starting_ = source_[at_ - 1] == '\n';
  }

  void next_tag() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == source_.npos || tag + 1 >= source_.size()) {
        add(Token::kText, rest());
        at_ = source_.size();
        return;
      }
      const char c = source_[tag + 1];
      if (c == '{' || c == '%' || c == '#') break;
      ++tag;
    }
    const char kind = source_[tag + 1];
    char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (sign != '-' && sign != '+') sign = '\0';
    const std::string_view text = rest().substr(0, tag - at_);
    add_text(text, sign, kind == '{');
    at_ = tag + 2 + (sign != '\0');
    if (kind == '#') return skip_comment();
    if (kind == '%' && raw_block()) return;
    add(kind == '{' ? Token::kPrintBegin : Token::kBlockBegin, "");
    code(kind == '{');
  }

  void skip_comment() {
    const size_t close = source_.find("#}", at_);
    if (close == source_.npos) fail("missing end of comment tag");
    char sign = '\0';
    if (close > at_ && (source_[close - 1] == '-' || source_[close - 1] == '+')) {
      sign = source_[close - 1];
    }
    at_ = close;
    finish_block(sign);
  }

  // The sign when "SPACE name SPACE [sign]%}" follows `from`; `from` is then at the "%}".
  std::optional<char> bare_tag(std::string_view name, size_t& from) {
    const auto skip = [this](size_t i) {
      while (i < source_.size() && is_space(static_cast<uint8_t>(source_[i]))) ++i;
      return i;
    };
    size_t i = skip(from);
    if (source_.compare(i, name.size(), name) != 0) return std::nullopt;
    i = skip(i + name.size());
    char sign = '\0';
    if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) sign = source_[i++];
    if (source_.compare(i, 2, "%}") != 0) return std::nullopt;
    from = i;
    return sign;
  }

  // {% raw %} ... {% endraw %}: everything between is text.
  bool raw_block() {
    size_t from = at_;
    const std::optional<char> sign = bare_tag("raw", from);
    if (!sign) return false;
    at_ = from + 2;
    if (*sign == '-') skip_space();
    line_starting_ = source_[at_ - 1] == '\n';
    for (size_t tag = at_; (tag = source_.find("{%", tag)) != source_.npos; ++tag) {
      size_t end = tag + 2;
      char open = end < source_.size() ? source_[end] : '\0';
      if (open == '-' || open == '+') {
        ++end;
      } else {
        open = '\0';
      }
      const std::optional<char> close = bare_tag("endraw", end);
      if (!close) continue;
      add_text(rest().substr(0, tag - at_), open, false);
      at_ = end;
      finish_block(*close);
      return true;
    }
    fail("missing end of raw directive");
  }

  // Tokens inside {{ }} or {% %}. The tag ends only outside of brackets.
  void code(bool is_print) {
    std::string brackets;
    while (true) {
      skip_space();
      if (at_ >= source_.size()) fail("unexpected end of template inside a tag");
      if (brackets.empty() && end_of_code(is_print)) return;
      const char c = source_[at_];
      if (is_name_start(c)) {
        name();
      } else if (is_digit(static_cast<uint8_t>(c))) {
        number();
      } else if (c == '"' || c == '\'') {
        string();
      } else {
        operator_token(brackets);
      }
    }
  }

  bool end_of_code(bool is_print) {
    const std::string_view close = is_print ? "}}" : "%}";
    char sign = '\0';
    if (looking_at("-") || (looking_at("+") && !is_print)) sign = source_[at_];
    if (!rest().substr(sign != '\0').starts_with(close)) return false;
    add(is_print ? Token::kPrintEnd : Token::kBlockEnd, "");
    at_ += sign != '\0';
    if (!is_print) {
      finish_block(sign);
      return true;
    }
    at_ += 2;
    if (sign == '-') skip_space();
    line_starting_ = source_[at_ - 1] == '\n';
    return true;
  }

  void name() {
    size_t end = at_;
    while (end < source_.size() &&
           (is_name_start(source_[end]) || is_digit(static_cast<uint8_t>(source_[end])))) {
      ++end;
    }
    add(Token::kName, rest().substr(0, end - at_));
    at_ = end;
  }

  // Digits with single underscores between them.
  size_t digits(size_t from) const {
    const auto digit = [this](size_t i) {
      return i < source_.size() && is_digit(static_cast<uint8_t>(source_[i]));
    };
    while (digit(from) || (from > 0 && from < source_.size() && source_[from] == '_' &&
                           digit(from - 1) && digit(from + 1))) {
      ++from;
    }
    return from;
  }

  void number() {
    size_t end = digits(at_);
    bool is_float = false;
    // "x.0.1" indexes twice; only a number that does not follow a dot has a fraction.
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!after_dot && end < source_.size() && source_[end] == '.' && digits(end + 1) > end + 1) {
      end = digits(end + 1);
      is_float = true;
    }
    if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t from = end + 1;
      if (from < source_.size() && (source_[from] == '+' || source_[from] == '-')) ++from;
      if (digits(from) > from) {
        end = digits(from);
        is_float = true;
      }
    }
    std::string text(rest().substr(0, end - at_));
    std::erase(text, '_');
    add(is_float ? Token::kFloat : Token::kInteger, text);
    at_ = end;
  }

  void string() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("string is not closed");
    add(Token::kString, unescape(rest().substr(1, end - at_ - 1)));
    at_ = end + 1;
  }

  // A hexadecimal escape of exactly `count` digits at `text[from]`.
  char32_t hex(std::string_view text, size_t from, size_t count) {
    if (text.size() - std::min(from, text.size()) < count) fail("escape in string is cut short");
    char32_t code = 0;
    for (const char c : text.substr(from, count)) {
      const char32_t lower = to_lower(static_cast<uint8_t>(c));
      if (!is_digit(lower) && !(lower >= 'a' && lower <= 'f')) fail("bad escape in string");
      code = code * 16 + (is_digit(lower) ? lower - '0' : lower - 'a' + 10);
    }
    return code;
  }

  std::string unescape(std::string_view text) {
    static constexpr std::string_view kFrom = "ntrbfav\\'\"";
    static constexpr std::string_view kTo = "\n\t\r\b\f\a\v\\'\"";
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      const size_t simple = kFrom.find(c);
      if (simple != kFrom.npos) {
        out += kTo[simple];
      } else if (c == '\n') {
        continue;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        char32_t code = hex(text, i + 1, count);
        i += count;
        if (code >= 0xD800 && code < 0xDC00 && text.substr(i + 1).starts_with("\\u")) {
          const char32_t low = hex(text, i + 3, 4);
          if (low >= 0xDC00 && low < 0xE000) {
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            i += 6;
          }
        }
        append_utf8(out, code);
      } else if (c >= '0' && c <= '7') {
        char32_t code = c - '0';
        for (int n = 0; n < 2 && i + 1 < text.size() && text[i + 1] >= '0' && text[i + 1] <= '7';
             ++n) {
          code = code * 8 + (text[++i] - '0');
        }
        append_utf8(out, code);
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  void operator_token(std::string& brackets) {
    static constexpr std::string_view kDouble[] = {"//", "**", "==", "!=", ">=", "<="};
    for (const std::string_view op : kDouble) {
      if (!looking_at(op)) continue;
      add(Token::kOperator, op);
      at_ += 2;
      return;
    }
    const char c = source_[at_];
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      fail(fmt::format("unexpected char '{}' in a tag", c));
    }
    if (c == '(' || c == '[' || c == '{') brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty() || brackets.back() != c) fail(fmt::format("unexpected '{}'", c));
      brackets.pop_back();
    }
    add(Token::kOperator, rest().substr(0, 1));
    ++at_;
  }

  const std::string source_;
  size_t at_ = 0;
  size_t counted_ = 0;
  int line_ = 1, column_ = 1;  // at `counted_`
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  if (!is_valid_utf8(source)) throw Error{"template is not valid UTF-8", 1, false, 1};
  return Lexer(source).run();
}

}  // namespace nereid::text::jinja
