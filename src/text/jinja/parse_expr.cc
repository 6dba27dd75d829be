// Parsing of expressions.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "text/jinja/parser.h"

namespace nereid::text::jinja {

namespace {

constexpr int kMaxExprDepth = 250;

int depth_of(const ExprPtr& expr) { return expr ? expr->depth : 0; }

}  // namespace

ExprPtr Parser::new_expr(Expr::Kind kind) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = current().line;
  return expr;
}

ExprPtr Parser::finish(ExprPtr expr) const {
  int depth = std::max(depth_of(expr->args.star), depth_of(expr->args.star_star));
  for (const ExprPtr& part : expr->parts) depth = std::max(depth, depth_of(part));
  for (const ExprPtr& arg : expr->args.positional) depth = std::max(depth, depth_of(arg));
  for (const auto& [name, arg] : expr->args.named) depth = std::max(depth, depth_of(arg));
  expr->depth = depth + 1;
  if (expr->depth > kMaxExprDepth) {
    fail(fmt::format("expression is nested more than {} deep", kMaxExprDepth));
  }
  return expr;
}

ExprPtr Parser::make(Expr::Kind kind, ExprPtr a, ExprPtr b) const {
  ExprPtr expr = new_expr(kind);
  expr->parts.push_back(std::move(a));
  if (b) expr->parts.push_back(std::move(b));
  return finish(std::move(expr));
}

ExprPtr Parser::parse_expression(bool with_condition) {
  const Nesting nesting(*this);
  return with_condition ? parse_condition() : parse_or();
}

ExprPtr Parser::parse_condition() {
  ExprPtr value = parse_or();
  while (accept_name("if")) {
    ExprPtr expr = new_expr(Expr::kCondition);
    expr->parts.push_back(parse_or());
    expr->parts.push_back(std::move(value));
    expr->parts.push_back(accept_name("else") ? parse_expression() : nullptr);
    value = finish(std::move(expr));
  }
  return value;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (accept_name("or")) left = make(Expr::kOr, std::move(left), parse_and());
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (accept_name("and")) left = make(Expr::kAnd, std::move(left), parse_not());
  return left;
}

ExprPtr Parser::parse_not() {
  if (!accept_name("not")) return parse_compare();
  const Nesting nesting(*this);
  return make(Expr::kNot, parse_not());
}

ExprPtr Parser::parse_compare() {
  static constexpr std::string_view kOps[] = {"==", "!=", "<", "<=", ">", ">="};
  ExprPtr first = parse_sum();
  ExprPtr chain;
  while (true) {
    std::string op;
    if (current().kind == Token::kOperator &&
        std::find(std::begin(kOps), std::end(kOps), current().text) != std::end(kOps)) {
      op = take().text;
    } else if (accept_name("in")) {
      op = "in";
    } else if (is_name("not") && peek().kind == Token::kName && peek().text == "in") {
      take();
      take();
      op = "not in";
    } else {
      break;
    }
    if (!chain) {
      chain = new_expr(Expr::kCompare);
      chain->parts.push_back(std::move(first));
    }
    chain->ops.push_back(std::move(op));
    chain->parts.push_back(parse_sum());
  }
  return chain ? finish(std::move(chain)) : std::move(first);
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (is_op("+") || is_op("-")) {
    const std::string op = take().text;
    left = make(Expr::kBinary, std::move(left), parse_concat());
    left->text = op;
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  ExprPtr first = parse_product();
  if (!is_op("~")) return first;
  ExprPtr expr = new_expr(Expr::kConcat);
  expr->parts.push_back(std::move(first));
  while (accept_op("~")) expr->parts.push_back(parse_product());
  return finish(std::move(expr));
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
    const std::string op = take().text;
    left = make(Expr::kBinary, std::move(left), parse_power());
    left->text = op;
  }
  return left;
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary(true);
  while (accept_op("**")) {
    left = make(Expr::kBinary, std::move(left), parse_unary(true));
    left->text = "**";
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filter) {
  const Nesting nesting(*this);
  ExprPtr expr;
  if (accept_op("-")) {
    expr = make(Expr::kNegate, parse_unary(false));
  } else if (accept_op("+")) {
    expr = make(Expr::kPlus, parse_unary(false));
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return with_filter ? parse_filters(std::move(expr), false) : std::move(expr);
}

ExprPtr Parser::parse_literal_name() {
  ExprPtr expr = new_expr(Expr::kConst);
  const std::string name = take().text;
  if (name == "true" || name == "True") {
    expr->value = true;
  } else if (name == "false" || name == "False") {
    expr->value = false;
  } else if (name == "none" || name == "None") {
    expr->value = None{};
  } else {
    expr->kind = Expr::kName;
    expr->text = name;
    for (Signature* signature : signatures_) {  // a name inside counts for the enclosing ones too
      if (name == "varargs") signature->uses_varargs = true;
      if (name == "kwargs") signature->uses_kwargs = true;
      if (name == "caller") signature->uses_caller = true;
    }
  }
  return expr;
}

ExprPtr Parser::parse_number() {
  ExprPtr expr = new_expr(Expr::kConst);
  const Token token = take();
  if (token.kind == Token::kFloat) {
    double value = 0;
    std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
    expr->value = value;
    return expr;
  }
  int64_t value = 0;
  const char* end = token.text.data() + token.text.size();
  if (std::from_chars(token.text.data(), end, value).ec != std::errc()) {
    fail(fmt::format("integer {} does not fit in 64 bits", token.text));
  }
  expr->value = value;
  return expr;
}

ExprPtr Parser::parse_primary() {
  switch (current().kind) {
    case Token::kName:
      return parse_literal_name();
    case Token::kString: {
      ExprPtr expr = new_expr(Expr::kConst);
      std::string text;
      while (current().kind == Token::kString) text += take().text;
      expr->value = std::move(text);
      return expr;
    }
    case Token::kInteger:
    case Token::kFloat:
      return parse_number();
    default:
      break;
  }
  if (accept_op("(")) {
    ExprPtr expr = parse_tuple(true, "", true);
    expect_op(")");
    return expr;
  }
  if (is_op("[")) return parse_list();
  if (is_op("{")) return parse_dict();
  unexpected("an expression");
}

ExprPtr Parser::parse_tuple(bool with_condition, std::string_view stop_name, bool in_parentheses) {
  std::vector<ExprPtr> parts;
  bool is_tuple = false;
  while (true) {
    if (!parts.empty()) {
      if (!accept_op(",")) break;
      is_tuple = true;
    }
    const Token& token = current();
    if (token.kind == Token::kPrintEnd || token.kind == Token::kBlockEnd || is_op(")")) break;
    if (!stop_name.empty() && is_name(stop_name)) break;
    parts.push_back(parse_expression(with_condition));
  }
  if (!is_tuple && !parts.empty()) return std::move(parts[0]);
  if (parts.empty() && !in_parentheses) unexpected("an expression");
  ExprPtr tuple = new_expr(Expr::kTuple);
  tuple->parts = std::move(parts);
  return finish(std::move(tuple));
}

ExprPtr Parser::parse_list() {
  ExprPtr list = new_expr(Expr::kList);
  take();
  while (!is_op("]")) {
    if (!list->parts.empty()) expect_op(",");
    if (is_op("]")) break;
    list->parts.push_back(parse_expression());
  }
  take();
  return finish(std::move(list));
}

ExprPtr Parser::parse_dict() {
  ExprPtr dict = new_expr(Expr::kDict);
  take();
  while (!is_op("}")) {
    if (!dict->parts.empty()) expect_op(",");
    if (is_op("}")) break;
    dict->parts.push_back(parse_expression());
    expect_op(":");
    dict->parts.push_back(parse_expression());
  }
  take();
  return finish(std::move(dict));
}

ExprPtr Parser::parse_postfix(ExprPtr expr) {
  while (true) {
    if (is_op(".") || is_op("[")) {
      expr = parse_subscript(std::move(expr));
    } else if (is_op("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_call(ExprPtr callee) {
  ExprPtr call = new_expr(Expr::kCall);
  call->parts.push_back(std::move(callee));
  call->args = parse_args();
  return finish(std::move(call));
}

ExprPtr Parser::parse_subscript(ExprPtr expr) {
  if (accept_op(".")) {
    if (current().kind == Token::kInteger)
      return make(Expr::kItem, std::move(expr), parse_number());
    ExprPtr attribute = new_expr(Expr::kAttribute);
    attribute->text = take_name("an attribute name");
    attribute->parts.push_back(std::move(expr));
    return finish(std::move(attribute));
  }
  expect_op("[");
  ExprPtr index = is_op(":") ? nullptr : parse_expression();
  if (!is_op(":")) {
    if (is_op(",")) fail("subscripts with several indices are not supported");
    expect_op("]");
    return make(Expr::kItem, std::move(expr), std::move(index));
  }
  ExprPtr slice = new_expr(Expr::kSlice);
  slice->parts.push_back(std::move(expr));
  slice->parts.push_back(std::move(index));
  while (slice->parts.size() < 4 && accept_op(":")) {
    const bool omitted = is_op(":") || is_op("]");
    slice->parts.push_back(omitted ? nullptr : parse_expression());
  }
  slice->parts.resize(4);
  expect_op("]");
  return finish(std::move(slice));
}

std::string Parser::parse_dotted_name(std::string_view what) {
  std::string name = take_name(what);
  while (accept_op(".")) name += "." + take_name(what);
  return name;
}

// `start_inline`: the first filter has no bar before it, as in {% filter upper %}.
ExprPtr Parser::parse_filters(ExprPtr expr, bool start_inline) {
  while (true) {
    if (start_inline || is_op("|")) {
      if (!start_inline) take();
      start_inline = false;
      ExprPtr filter = new_expr(Expr::kFilter);
      filter->text = parse_dotted_name("a filter name");
      if (is_op("(")) filter->args = parse_args();
      filter->parts.push_back(std::move(expr));
      expr = finish(std::move(filter));
    } else if (expr && is_name("is")) {
      expr = parse_test(std::move(expr));
    } else if (expr && is_op("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_test(ExprPtr expr) {
  take();
  ExprPtr test = new_expr(Expr::kTest);
  test->negated = accept_name("not");
  test->text = parse_dotted_name("a test name");
  test->parts.push_back(std::move(expr));
  const Token& token = current();
  const bool operand = token.kind == Token::kName || token.kind == Token::kString ||
                       token.kind == Token::kInteger || token.kind == Token::kFloat || is_op("[") ||
                       is_op("{");
  if (is_op("(")) {
    test->args = parse_args();
  } else if (operand && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) fail("tests cannot be chained with 'is'");
    test->args.positional.push_back(parse_postfix(parse_primary()));
  }
  return finish(std::move(test));
}

CallArgs Parser::parse_args() {
  const Nesting nesting(*this);
  CallArgs args;
  expect_op("(");
  bool first = true;
  while (!is_op(")")) {
    if (!std::exchange(first, false)) expect_op(",");
    if (is_op(")")) break;
    if (accept_op("**")) {
      if (args.star_star) fail("more than one '**' argument");
      args.star_star = parse_expression();
    } else if (accept_op("*")) {
      if (args.star || args.star_star) fail("misplaced '*' argument");
      args.star = parse_expression();
    } else if (current().kind == Token::kName && peek().kind == Token::kOperator &&
               peek().text == "=") {
      const std::string name = take().text;
      take();
      args.named.emplace_back(name, parse_expression());
    } else {
      if (!args.named.empty() || args.star || args.star_star) {
        fail("positional argument after a keyword argument");
      }
      args.positional.push_back(parse_expression());
    }
  }
  take();
  return args;
}

}  // namespace nereid::text::jinja
