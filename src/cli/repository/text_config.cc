// Parser of protobuf text; see text_config.h.
#include "cli/repository/text_config.h"

#include <algorithm>

#include <fmt/format.h>

namespace nereid::cli {
namespace {

constexpr int kMaxNesting = 64;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_word(char c) {
  return c == '_' || c == '.' || c == '-' || c == '+' || (c >= '0' && c <= '9') ||
         (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

struct Token {
  enum class Kind { kWord, kString, kSymbol, kEnd } kind = Kind::kEnd;
  std::string text;
  int line = 1;
  bool is(char c) const { return kind == Kind::kSymbol && text[0] == c; }
};

class Parser {
 public:
  Parser(std::string_view text, const Report& report) : text_(text), report_(report) { next(); }

  TextField parse() {
    TextField root;
    root.is_message = true;
    root.line = 1;
    while (token_.kind != Token::Kind::kEnd) {
      fields(root, 0);
      if (token_.kind == Token::Kind::kEnd) break;
      report_(token_.line, "", fmt::format("'{}' closes nothing", token_.text));
      next();
    }
    return root;
  }

 private:
  // Fields until a closing bracket or the end.
  void fields(TextField& to, int depth) {
    while (token_.kind != Token::Kind::kEnd && !token_.is('}') && !token_.is('>') &&
           !token_.is(']')) {
      if (token_.kind != Token::Kind::kWord) {
        report_(token_.line, "", fmt::format("expected a field's name, found '{}'", token_.text));
        next();
        continue;
      }
      const Token name = token_;
      next();
      const bool has_colon = token_.is(':');
      if (has_colon) next();
      values(to, name, has_colon, depth);
      if (token_.is(',') || token_.is(';')) next();
    }
  }

  void values(TextField& to, const Token& name, bool has_colon, int depth) {
    if (!token_.is('[')) return value(to, name, has_colon, depth);
    next();
    while (token_.kind != Token::Kind::kEnd && !token_.is(']')) {
      const size_t before = at_;
      value(to, name, true, depth);
      if (token_.is(',')) {
        next();
        if (token_.is(']')) report_(token_.line, name.text, "a list must not end with a comma");
      } else if (!token_.is(']') && token_.kind != Token::Kind::kEnd) {
        report_(token_.line, name.text,
                fmt::format("expected ',' or ']' in a list, found '{}'", token_.text));
        if (at_ == before) next();
      }
    }
    close(']', name);
  }

  void value(TextField& to, const Token& name, bool has_colon, int depth) {
    TextField field;
    field.name = name.text;
    field.line = name.line;
    if (token_.is('{') || token_.is('<')) {
      const char end = token_.is('{') ? '}' : '>';
      next();
      field.is_message = true;
      if (depth >= kMaxNesting) {
        report_(name.line, name.text, fmt::format("more than {} levels of nesting", kMaxNesting));
        at_ = text_.size();
        next();
        return;
      }
      fields(field, depth + 1);
      close(end, name);
    } else if (token_.kind == Token::Kind::kString) {
      field.is_string = true;
      for (; token_.kind == Token::Kind::kString; next()) field.value += token_.text;
    } else if (token_.kind == Token::Kind::kWord) {
      field.value = token_.text;
      next();
    } else {
      report_(name.line, name.text, "has no value");
      return;
    }
    if (!has_colon && !field.is_message) {
      report_(name.line, name.text, "expected ':' between name and value");
    }
    to.fields.push_back(std::move(field));
  }

  void close(char bracket, const Token& name) {
    if (token_.is(bracket)) return next();
    report_(name.line, name.text, fmt::format("is not closed by '{}'", bracket));
  }

  void next() {
    while (at_ < text_.size() && (is_space(text_[at_]) || text_[at_] == '#')) {
      if (text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        if (text_[at_] == '\n') ++line_;
        ++at_;
      }
    }
    token_ = {Token::Kind::kEnd, "the end of the file", line_};
    if (at_ >= text_.size()) return;
    const char c = text_[at_];
    if (c == '"' || c == '\'') return string(c);
    size_t end = at_;
    while (end < text_.size() && is_word(text_[end])) ++end;
    if (text_.substr(at_).starts_with("${")) {
      end = std::min(text_.find_first_of("}\n", at_), text_.size());
      if (end < text_.size() && text_[end] == '}') ++end;
    }
    const bool is_symbol = end == at_;
    if (is_symbol) ++end;
    token_ = {is_symbol ? Token::Kind::kSymbol : Token::Kind::kWord,
              std::string(text_.substr(at_, end - at_)), line_};
    at_ = end;
  }

  void string(char quote) {
    token_ = {Token::Kind::kString, "", line_};
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] == '\n') {
        report_(line_, "", "a string that does not end on its line");
        return;
      }
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        ++at_;
        token_.text += text_[at_] == 'n' ? '\n' : text_[at_] == 't' ? '\t' : text_[at_];
      } else {
        token_.text += text_[at_];
      }
    }
    if (at_ >= text_.size()) {
      report_(line_, "", "a string that does not end");
      return;
    }
    ++at_;
  }

  std::string_view text_;
  const Report& report_;
  size_t at_ = 0;
  int line_ = 1;
  Token token_;
};

}  // namespace

const TextField* TextField::find(std::string_view field) const {
  for (const auto& f : fields) {
    if (f.name == field) return &f;
  }
  return nullptr;
}

std::vector<const TextField*> TextField::all(std::string_view field) const {
  std::vector<const TextField*> out;
  for (const auto& f : fields) {
    if (f.name == field) out.push_back(&f);
  }
  return out;
}

std::string TextField::text(std::string_view field) const {
  const TextField* found = find(field);
  return found == nullptr ? "" : found->value;
}

TextField parse_text_config(std::string_view text, const Report& report) {
  return Parser(text, report).parse();
}

}  // namespace nereid::cli
