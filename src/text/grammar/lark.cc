// Recursive descent over the statements. The ignored terminals follow each terminal of a rule.
#include "text/grammar/lark.h"

#include <algorithm>
#include <map>
#include <optional>

#include "text/grammar/gbnf.h"
#include "text/grammar/regex_expr.h"
#include "text/unicode/utf8.h"

namespace nereid::text {
namespace {

// Terminals of Lark's library as regular expressions.
struct CommonTerminal {
  std::string_view name, pattern;
};
constexpr CommonTerminal kCommon[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[a-fA-F0-9]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+\\-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+\\-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+\\-]?[0-9]+)?"},
    {"SIGNED_FLOAT",
     "[+\\-]?([0-9]+[eE][+\\-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+\\-]?[0-9]+)?)"},
    {"NUMBER", "([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][+\\-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+\\-]?([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][+\\-]?[0-9]+)?"},
    {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"C_COMMENT", "/\\*([^*]|\\*+[^*/])*\\*+/"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_terminal(std::string_view name) {
  const size_t first = name.find_first_not_of('_');
  return first != std::string_view::npos && name[first] >= 'A' && name[first] <= 'Z';
}

class LarkParser {
 public:
  explicit LarkParser(std::string_view text)
      : text_(text), ignores_(text.find("%ignore") != std::string_view::npos) {}
  StatusOr<Rules> parse();

 private:
  static constexpr int32_t kStart = 0, kIgnored = 1;
  struct Name {
    int32_t rule = 0;
    size_t used_at = 0;  // offset of the first use
  };

  Status error(std::string_view reason, std::optional<size_t> at = {}) const {
    const auto end = text_.begin() + static_cast<ptrdiff_t>(at.value_or(at_));
    return invalid_argument("grammar: {} in line {}", reason,
                            1 + std::count(text_.begin(), end, '\n'));
  }
  std::string_view rest() const { return text_.substr(at_); }
  bool take(std::string_view token) {
    if (!rest().starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void skip_blanks(bool lines);
  // Skips to the rest of the statement, which may begin with '|' in a later line.
  void skip_to_part(int depth);
  std::string_view name();
  StatusOr<std::string_view> needed_name();
  int32_t rule(std::string_view name);
  Status define(std::string_view name, ExprPtr expr);
  Status statement();
  Status directive();
  Status import();
  Status import_one(std::string_view name, std::string_view as);
  Status end_of_statement();
  StatusOr<ExprPtr> choices(int depth);
  StatusOr<ExprPtr> parts(int depth);
  StatusOr<ExprPtr> atom(int depth);
  StatusOr<ExprPtr> named();
  StatusOr<ExprPtr> quantified(ExprPtr part);
  StatusOr<int32_t> count();
  StatusOr<std::string_view> quoted(char mark);
  StatusOr<ExprPtr> text_or_range();
  StatusOr<ExprPtr> pattern();
  ExprPtr terminal(ExprPtr expr) const {
    return ignores_ && !in_terminal_ ? sequence({std::move(expr), call(kIgnored)}) : expr;
  }

  const std::string_view text_;
  const bool ignores_;
  size_t at_ = 0;
  bool in_terminal_ = false;
  Rules rules_;
  std::vector<ExprPtr> ignored_;
  std::map<std::string, Name, std::less<>> names_;
};

void LarkParser::skip_blanks(bool lines) {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '#' || rest().starts_with("//")) {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && lines)) {
      ++at_;
    } else {
      return;
    }
  }
}

void LarkParser::skip_to_part(int depth) {
  skip_blanks(depth > 0);
  const size_t begin = at_;
  skip_blanks(true);
  if (!rest().starts_with("|")) at_ = begin;
}

std::string_view LarkParser::name() {
  const size_t begin = at_;
  while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
}

StatusOr<std::string_view> LarkParser::needed_name() {
  skip_blanks(false);
  const std::string_view result = name();
  if (result.empty()) return error("a name is missing");
  return result;
}

int32_t LarkParser::rule(std::string_view name) {
  const auto found = names_.find(name);
  if (found != names_.end()) return found->second.rule;
  rules_.emplace_back();
  const auto index = static_cast<int32_t>(rules_.size()) - 1;
  names_[std::string(name)] = {index, at_};
  return index;
}

Status LarkParser::define(std::string_view name, ExprPtr expr) {
  ExprPtr& place = rules_[static_cast<size_t>(rule(name))];
  if (place) return error(fmt::format("a second '{}'", name));
  place = std::move(expr);
  return ok();
}

StatusOr<Rules> LarkParser::parse() {
  if (!is_valid_utf8(text_)) return invalid_argument("grammar: it is not UTF-8");
  rule("start");                  // kStart
  rules_.push_back(literal(""));  // kIgnored
  for (skip_blanks(true); at_ < text_.size(); skip_blanks(true))
    RETURN_IF_ERROR(rest()[0] == '%' ? directive() : statement());
  for (const auto& [name, known] : names_)
    if (!rules_[static_cast<size_t>(known.rule)])
      return known.rule == kStart
                 ? invalid_argument("grammar: there is no rule 'start'")
                 : error(fmt::format("'{}' is not defined, used", name), known.used_at);
  if (ignored_.empty()) return std::move(rules_);
  rules_[kIgnored] = repeat(choice(std::move(ignored_)), 0, kUnbounded);
  // Other rules may call `start` too.
  rules_.push_back(ExprPtr(rules_[kStart]));
  rules_[kStart] = sequence({call(kIgnored), call(static_cast<int32_t>(rules_.size()) - 1)});
  return std::move(rules_);
}

// Removes left recursion: A: A b | c becomes A: c b*.
ExprPtr without_own_beginning(const ExprPtr& expr, int32_t rule) {
  const auto is_call = [&](const ExprPtr& e) {
    return e->kind == Expr::Kind::kRule && e->rule == rule;
  };
  if (expr->kind != Expr::Kind::kChoice) return expr;
  std::vector<ExprPtr> first, more;
  for (const ExprPtr& way : expr->parts) {
    if (is_call(way)) continue;  // A: A adds nothing
    if (way->kind == Expr::Kind::kSequence && !way->parts.empty() && is_call(way->parts[0]))
      more.push_back(sequence({way->parts.begin() + 1, way->parts.end()}));
    else
      first.push_back(way);
  }
  if (first.empty() || first.size() == expr->parts.size()) return expr;
  if (more.empty()) return choice(std::move(first));
  return sequence({choice(std::move(first)), repeat(choice(std::move(more)), 0, kUnbounded)});
}

Status LarkParser::statement() {
  if (!take("?")) take("!");  // tree-shaping marks have no effect
  const std::string_view defined = name();
  if (defined.empty()) return error("neither a rule 'name: ...' nor a directive");
  if (rest().starts_with("{")) return error(fmt::format("a template, '{}{{'", defined));
  if (rest().starts_with("[")) return error(fmt::format("attributes of a rule, '{}['", defined));
  if (take(".")) {  // priorities have no effect
    take("-");
    RETURN_IF_ERROR(count().status());
  }
  skip_blanks(false);
  if (!take(":")) return error(fmt::format("no ':' behind '{}'", defined));
  in_terminal_ = is_terminal(defined);
  const int32_t index = rule(defined);
  ASSIGN_OR_RETURN(const ExprPtr expr, choices(0));
  RETURN_IF_ERROR(define(defined, in_terminal_ ? expr : without_own_beginning(expr, index)));
  return end_of_statement();
}

Status LarkParser::end_of_statement() {
  skip_blanks(false);
  if (rest().empty() || rest()[0] == '\n') return ok();
  return error(fmt::format("'{}', which belongs to nothing,", rest().substr(0, 1)));
}

Status LarkParser::directive() {
  take("%");
  const std::string_view word = name();
  if (word == "import") return import();
  if (word != "ignore")
    return error(fmt::format("'%{}', which is not supported (%ignore and %import are),", word));
  in_terminal_ = true;
  ASSIGN_OR_RETURN(ignored_.emplace_back(), choices(0));
  return end_of_statement();
}

// "common.NAME", "common.NAME -> NAME" or "common (NAME, NAME)".
Status LarkParser::import() {
  ASSIGN_OR_RETURN(const std::string_view library, needed_name());
  if (library != "common")
    return error(
        fmt::format("an import from '{}', which does not exist; allowed: common;", library));
  if (take(".")) {
    ASSIGN_OR_RETURN(const std::string_view wanted, needed_name());
    std::string_view as = wanted;
    skip_blanks(false);
    if (take("->")) {
      ASSIGN_OR_RETURN(as, needed_name());
    }
    RETURN_IF_ERROR(import_one(wanted, as));
    return end_of_statement();
  }
  skip_blanks(false);
  if (!take("(")) return error("neither '.' nor '(' behind 'common'");
  do {
    ASSIGN_OR_RETURN(const std::string_view wanted, needed_name());
    RETURN_IF_ERROR(import_one(wanted, wanted));
    skip_blanks(false);
  } while (take(","));
  if (!take(")")) return error("'(' without ')'");
  return end_of_statement();
}

Status LarkParser::import_one(std::string_view name, std::string_view as) {
  const auto* const found = std::ranges::find(kCommon, name, &CommonTerminal::name);
  if (found == std::end(kCommon)) return error(fmt::format("common has no '{}',", name));
  ASSIGN_OR_RETURN(ExprPtr expr, regex_expr(found->pattern));
  return define(as, std::move(expr));
}

StatusOr<ExprPtr> LarkParser::choices(int depth) {
  if (depth > kMaxGrammarDepth)
    return error(fmt::format("more than {} groups inside each other", kMaxGrammarDepth));
  std::vector<ExprPtr> all;
  skip_to_part(depth);
  take("|");  // before the first alternative
  do {
    ASSIGN_OR_RETURN(ExprPtr one, parts(depth));
    all.push_back(std::move(one));
  } while (take("|"));
  return choice(std::move(all));
}

StatusOr<ExprPtr> LarkParser::parts(int depth) {
  std::vector<ExprPtr> all;
  for (;;) {
    skip_to_part(depth);
    if (rest().empty() || std::string_view("|)]\n").find(rest()[0]) != std::string_view::npos)
      break;
    if (take("->")) {  // an alias, the name of a tree's node
      RETURN_IF_ERROR(needed_name().status());
      continue;
    }
    ASSIGN_OR_RETURN(ExprPtr part, atom(depth));
    ASSIGN_OR_RETURN(part, quantified(std::move(part)));
    all.push_back(std::move(part));
  }
  return sequence(std::move(all));
}

StatusOr<ExprPtr> LarkParser::atom(int depth) {
  const char c = rest()[0];
  if (c == '"') return text_or_range();
  if (c == '/') return pattern();
  if (c == '(' || c == '[') {
    ++at_;
    ASSIGN_OR_RETURN(ExprPtr inner, choices(depth + 1));
    if (!take(c == '(' ? ")" : "]")) return error(fmt::format("'{}' without its end", c));
    return c == '(' ? inner : optional(std::move(inner));
  }
  if (c == '<') return error("a special token, '<', which is not supported,");
  if (c == '%') return error("a directive in a rule, '%', which is not supported,");
  if (is_name_char(c)) return named();
  return error(fmt::format("'{}', which begins no element,", c));
}

StatusOr<ExprPtr> LarkParser::named() {
  const std::string_view called = name();
  if (rest().starts_with("{"))
    return error(fmt::format("a template, '{}{{', which is not supported,", called));
  if (is_terminal(called)) return terminal(call(rule(called)));
  if (in_terminal_) return error(fmt::format("the rule '{}' in a terminal", called));
  return call(rule(called));
}

StatusOr<int32_t> LarkParser::count() {
  skip_blanks(false);
  const size_t begin = at_;
  int32_t value = 0;
  while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && value <= kMaxRegexRepeat)
    value = value * 10 + (text_[at_++] - '0');
  if (at_ == begin) return error("a number is missing");
  if (value > kMaxRegexRepeat) return error(fmt::format("a number above {}", kMaxRegexRepeat));
  return value;
}

StatusOr<ExprPtr> LarkParser::quantified(ExprPtr part) {
  skip_blanks(false);
  if (take("*")) return repeat(std::move(part), 0, kUnbounded);
  if (take("+")) return repeat(std::move(part), 1, kUnbounded);
  if (take("?")) return optional(std::move(part));
  if (!take("~")) return part;
  ASSIGN_OR_RETURN(const int32_t least, count());
  int32_t most = least;
  skip_blanks(false);
  if (take("..")) {
    ASSIGN_OR_RETURN(most, count());
  }
  if (most < least) return error("a repetition whose limits are in the wrong order");
  return repeat(std::move(part), least, most);
}

// The text up to the next mark in the line; a backslash escapes a character.
StatusOr<std::string_view> LarkParser::quoted(char mark) {
  const size_t begin = ++at_;
  for (; at_ < text_.size() && text_[at_] != '\n'; ++at_) {
    if (text_[at_] == mark) return text_.substr(begin, at_++ - begin);
    if (text_[at_] == '\\') ++at_;
  }
  at_ = std::min(at_, text_.size());
  return error(fmt::format("'{}' without its end", mark));
}

// The only character of a quoted text, escapes resolved.
std::optional<char32_t> one_char(std::string_view text) {
  if (text.empty()) return {};
  if (const Utf8Step step = utf8_step(text); text[0] != '\\')
    return step.length == text.size() ? std::optional(step.code) : std::nullopt;
  const auto escaped = regex_expr(text);
  if (!escaped.ok() || (*escaped)->kind != Expr::Kind::kChars) return {};
  const auto& ranges = (*escaped)->chars.ranges();
  if (ranges.size() != 1 || ranges[0].first != ranges[0].second) return {};
  return ranges[0].first;
}

StatusOr<ExprPtr> LarkParser::text_or_range() {
  ASSIGN_OR_RETURN(const std::string_view text, quoted('"'));
  const RegexForm form{.any_case = take("i")};
  auto expr = text_expr(text, form);
  if (!expr.ok()) return error(message(expr.status()));
  if (!take("..")) return terminal(*std::move(expr));
  if (!rest().starts_with("\"")) return error("'..' without a text behind it");
  ASSIGN_OR_RETURN(const std::string_view last, quoted('"'));
  const auto from = one_char(text), to = one_char(last);
  if (!from || !to || *to < *from || form.any_case)
    return error("a range whose ends are no characters in order");
  return terminal(one_of({*from, *to}));
}

StatusOr<ExprPtr> LarkParser::pattern() {
  ASSIGN_OR_RETURN(const std::string_view text, quoted('/'));
  RegexForm form;
  for (; at_ < text_.size() && text_[at_] >= 'a' && text_[at_] <= 'z'; ++at_) {
    const char flag = text_[at_];
    if (flag != 'i' && flag != 's' && flag != 'u')
      return error(fmt::format("the flag '{}' (i, s and u are supported)", flag));
    form.any_case |= flag == 'i';
    form.dot_is_all |= flag == 's';
  }
  auto expr = regex_expr(text, form);
  if (!expr.ok()) return error(message(expr.status()));
  return terminal(*std::move(expr));
}

}  // namespace

StatusOr<Rules> lark_rules(std::string_view grammar) { return LarkParser(grammar).parse(); }

StatusOr<Rules> ebnf_rules(std::string_view grammar) {
  std::string_view left = grammar;
  for (;;) {
    left.remove_prefix(std::min(left.find_first_not_of(" \t\r\n"), left.size()));
    if (!left.starts_with("#") && !left.starts_with("//")) break;
    left.remove_prefix(std::min(left.find('\n'), left.size()));
  }
  const size_t mark = left.find_first_of(":=\n");
  const bool is_lark =
      left.starts_with("%") || (mark != std::string_view::npos && left[mark] == ':' &&
                                !left.substr(mark).starts_with("::="));
  return is_lark ? lark_rules(grammar) : gbnf_rules(grammar);
}

}  // namespace nereid::text
