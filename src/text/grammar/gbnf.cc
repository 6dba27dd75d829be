// Recursive descent over the rules. Classes and repetitions have the syntax of regular expressions.
#include "text/grammar/gbnf.h"

#include <algorithm>
#include <map>

#include "text/grammar/regex_expr.h"
#include "text/unicode/utf8.h"

namespace nereid::text {
namespace {

class GbnfParser {
 public:
  explicit GbnfParser(std::string_view text) : text_(text) {}
  StatusOr<Rules> parse();

 private:
  Status error(std::string_view reason) const {
    return invalid_argument(
        "grammar: {} in line {}", reason,
        1 + std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(at_), '\n'));
  }
  std::string_view rest() const { return text_.substr(at_); }
  bool take(std::string_view token) {
    if (!rest().starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void skip_blanks(bool lines);
  std::string_view name();
  int32_t rule(std::string_view name);
  bool at_rule() const;
  Status parse_rule();
  StatusOr<ExprPtr> choices(int depth);
  StatusOr<ExprPtr> parts(int depth);
  StatusOr<ExprPtr> atom(int depth);
  StatusOr<ExprPtr> quantified(ExprPtr part);
  StatusOr<std::string_view> quoted(char open, char close);
  StatusOr<ExprPtr> text_literal();

  const std::string_view text_;
  size_t at_ = 0;
  Rules rules_;
  std::map<std::string, int32_t, std::less<>> names_;
};

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

void GbnfParser::skip_blanks(bool lines) {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && lines)) {
      ++at_;
    } else {
      return;
    }
  }
}

std::string_view GbnfParser::name() {
  const size_t begin = at_;
  while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
}

int32_t GbnfParser::rule(std::string_view name) {
  const auto found = names_.find(name);
  if (found != names_.end()) return found->second;
  rules_.emplace_back();
  return names_[std::string(name)] = static_cast<int32_t>(rules_.size()) - 1;
}

// Whether a rule definition begins here.
bool GbnfParser::at_rule() const {
  GbnfParser ahead(text_);
  ahead.at_ = at_;
  if (ahead.name().empty()) return false;
  ahead.skip_blanks(false);
  return ahead.rest().starts_with("::=");
}

StatusOr<Rules> GbnfParser::parse() {
  if (!is_valid_utf8(text_)) return invalid_argument("grammar: it is not UTF-8");
  rule("root");
  for (skip_blanks(true); at_ < text_.size(); skip_blanks(true)) RETURN_IF_ERROR(parse_rule());
  for (const auto& [name, index] : names_)
    if (!rules_[static_cast<size_t>(index)])
      return invalid_argument("grammar: there is no rule '{}'", name);
  return std::move(rules_);
}

Status GbnfParser::parse_rule() {
  if (!at_rule()) return error("no rule 'name ::= ...'");
  const int32_t index = rule(name());
  skip_blanks(false);
  take("::=");
  if (rules_[static_cast<size_t>(index)]) return error("a second rule of this name");
  ASSIGN_OR_RETURN(rules_[static_cast<size_t>(index)], choices(0));
  if (rest().starts_with(")")) return error("')' without '('");
  return ok();
}

StatusOr<ExprPtr> GbnfParser::choices(int depth) {
  if (depth > kMaxGrammarDepth)
    return error(fmt::format("more than {} groups inside each other", kMaxGrammarDepth));
  std::vector<ExprPtr> all;
  do {
    ASSIGN_OR_RETURN(ExprPtr one, parts(depth));
    all.push_back(std::move(one));
  } while (take("|"));
  return choice(std::move(all));
}

StatusOr<ExprPtr> GbnfParser::parts(int depth) {
  std::vector<ExprPtr> all;
  for (;;) {
    skip_blanks(true);
    if (rest().empty() || rest()[0] == '|' || rest()[0] == ')' || at_rule()) break;
    ASSIGN_OR_RETURN(ExprPtr part, atom(depth));
    ASSIGN_OR_RETURN(part, quantified(std::move(part)));
    all.push_back(std::move(part));
  }
  return sequence(std::move(all));
}

StatusOr<ExprPtr> GbnfParser::atom(int depth) {
  const char c = rest()[0];
  if (c == '"') return text_literal();
  if (c == '[') {
    ASSIGN_OR_RETURN(const std::string_view text, quoted('[', ']'));
    auto set = regex_expr(text);
    return set.ok() ? set : error(message(set.status()));
  }
  if (take(".")) return one_of(CharSet::all());
  if (take("(")) {
    ASSIGN_OR_RETURN(ExprPtr inner, choices(depth + 1));
    if (!take(")")) return error("'(' without ')'");
    return inner;
  }
  if (const std::string_view called = name(); !called.empty()) return call(rule(called));
  return error(fmt::format("'{}', which begins no element,", c));
}

StatusOr<ExprPtr> GbnfParser::quantified(ExprPtr part) {
  if (take("*")) return repeat(std::move(part), 0, kUnbounded);
  if (take("+")) return repeat(std::move(part), 1, kUnbounded);
  if (take("?")) return repeat(std::move(part), 0, 1);
  if (!rest().starts_with("{")) return part;
  ASSIGN_OR_RETURN(const std::string_view braces, quoted('{', '}'));
  auto dots = regex_expr(fmt::format(".{}", braces));
  if (!dots.ok() || (*dots)->kind != Expr::Kind::kRepeat)
    return error("braces that are no {m}, {m,} or {m,n}");
  return repeat(std::move(part), (*dots)->least, (*dots)->most);
}

// The text from `open` to `close`, both included; a backslash escapes the next character.
StatusOr<std::string_view> GbnfParser::quoted(char open, char close) {
  const size_t begin = at_;
  for (++at_; at_ < text_.size() && text_[at_] != '\n'; ++at_) {
    if (text_[at_] == close) return text_.substr(begin, ++at_ - begin);
    if (text_[at_] == '\\') ++at_;
  }
  at_ = std::min(at_, text_.size());
  return error(fmt::format("'{}' without '{}'", open, close));
}

StatusOr<ExprPtr> GbnfParser::text_literal() {
  ASSIGN_OR_RETURN(const std::string_view text, quoted('"', '"'));
  auto expr = text_expr(text.substr(1, text.size() - 2));
  return expr.ok() ? expr : error(message(expr.status()));
}

}  // namespace

StatusOr<Rules> gbnf_rules(std::string_view grammar) { return GbnfParser(grammar).parse(); }

std::string choice_gbnf(const std::vector<std::string>& texts) {
  std::string grammar = "root ::= ";
  for (size_t i = 0; i < texts.size(); ++i) {
    grammar += i > 0 ? " | \"" : "\"";
    for (const char c : texts[i]) {
      if (c == '\n') {
        grammar += "\\n";
        continue;
      }
      if (c == '"' || c == '\\') grammar += '\\';
      grammar += c;
    }
    grammar += '"';
  }
  return grammar;
}

}  // namespace nereid::text
