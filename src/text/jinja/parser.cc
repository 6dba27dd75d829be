#include "text/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>

namespace nereid::text::jinja {

namespace {

constexpr int kMaxNesting = 120;

std::string describe(const Token& token) {
  switch (token.kind) {
    case Token::kEnd:
      return "end of template";
    case Token::kText:
      return "text";
    case Token::kPrintBegin:
      return "'{{'";
    case Token::kPrintEnd:
      return "'}}'";
    case Token::kBlockBegin:
      return "'{%'";
    case Token::kBlockEnd:
      return "'%}'";
    case Token::kString:
      return "a string";
    default:
      return fmt::format("'{}'", token.text);
  }
}

}  // namespace

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kMaxNesting) {
    --parser_.nesting_;
    parser_.fail(fmt::format("template is nested more than {} deep", kMaxNesting));
  }
}

void Parser::fail(std::string message) const {
  throw Error{std::move(message), current().line, false, current().column};
}

void Parser::unexpected(std::string_view wanted) const {
  fail(fmt::format("unexpected {}, expected {}", describe(current()), wanted));
}

Token Parser::take() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::is_op(std::string_view op) const {
  return current().kind == Token::kOperator && current().text == op;
}
bool Parser::is_name(std::string_view name) const {
  return current().kind == Token::kName && current().text == name;
}
bool Parser::accept_op(std::string_view op) {
  if (!is_op(op)) return false;
  take();
  return true;
}
bool Parser::accept_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}
void Parser::expect_op(std::string_view op) {
  if (!accept_op(op)) unexpected(fmt::format("'{}'", op));
}
void Parser::expect_name(std::string_view name) {
  if (!accept_name(name)) unexpected(fmt::format("'{}'", name));
}
void Parser::expect(Token::Kind kind, std::string_view what) {
  if (current().kind != kind) unexpected(what);
  take();
}
std::string Parser::take_name(std::string_view what) {
  if (current().kind != Token::kName) unexpected(what);
  return take().text;
}

Body Parser::parse() {
  Body body = parse_body({});
  if (current().kind != Token::kEnd) unexpected("end of template");
  return body;
}

std::unique_ptr<Stmt> Parser::new_stmt(Stmt::Kind kind) const {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = kind;
  stmt->line = current().line;
  return stmt;
}

Body Parser::parse_body(std::initializer_list<std::string_view> ends) {
  const Nesting nesting(*this);
  Body body;
  while (true) {
    switch (current().kind) {
      case Token::kText:
        body.push_back(new_stmt(Stmt::kText));
        body.back()->text = take().text;
        break;
      case Token::kPrintBegin:
        take();
        body.push_back(new_stmt(Stmt::kPrint));
        body.back()->expr = parse_tuple(true, "", false);
        expect(Token::kPrintEnd, "'}}'");
        break;
      case Token::kBlockBegin:
        take();
        if (current().kind != Token::kName) unexpected("a tag name");
        if (std::find(ends.begin(), ends.end(), current().text) != ends.end()) return body;
        parse_statement(body);
        expect(Token::kBlockEnd, "'%}'");
        break;
      default:
        if (ends.size() != 0) unexpected(fmt::format("'{{% {} %}}'", *(ends.end() - 1)));
        return body;
    }
  }
}

Body Parser::parse_block(std::string_view end) {
  expect(Token::kBlockEnd, "'%}'");
  Body body = parse_body({end});
  take();
  return body;
}

void Parser::check_loop(std::string_view tag) const {
  if (loops_ == 0) fail(fmt::format("'{}' outside of a loop", tag));
}

void Parser::parse_statement(Body& out) {
  const std::string tag = current().text;
  std::unique_ptr<Stmt> stmt;
  if (tag == "if") {
    stmt = parse_if();
  } else if (tag == "for") {
    stmt = parse_for();
  } else if (tag == "set") {
    stmt = parse_set();
  } else if (tag == "macro") {
    stmt = parse_macro();
  } else if (tag == "call") {
    stmt = parse_call_block();
  } else if (tag == "with") {
    stmt = parse_with();
  } else if (tag == "filter") {
    stmt = new_stmt(Stmt::kFilter);
    take();
    stmt->expr = parse_filters(nullptr, true);
    stmt->body = parse_block("endfilter");
  } else if (tag == "generation") {
    stmt = new_stmt(Stmt::kScope);
    take();
    stmt->body = parse_block("endgeneration");
  } else if (tag == "break" || tag == "continue") {
    check_loop(tag);
    stmt = new_stmt(tag == "break" ? Stmt::kBreak : Stmt::kContinue);
    take();
  } else if (tag == "include" || tag == "extends" || tag == "import" || tag == "from" ||
             tag == "block") {
    fail(fmt::format("tag '{}' is not supported in chat templates", tag));
  } else {
    fail(fmt::format("unknown tag '{}'", tag));
  }
  out.push_back(std::move(stmt));
}

std::unique_ptr<Stmt> Parser::parse_if() {
  auto stmt = new_stmt(Stmt::kIf);
  do {
    take();
    ExprPtr test = parse_tuple(false, "", false);
    expect(Token::kBlockEnd, "'%}'");
    stmt->branches.emplace_back(std::move(test), parse_body({"elif", "else", "endif"}));
  } while (is_name("elif"));
  if (accept_name("else")) {
    expect(Token::kBlockEnd, "'%}'");
    stmt->orelse = parse_body({"endif"});
  }
  take();
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_for() {
  auto stmt = new_stmt(Stmt::kFor);
  take();
  stmt->target = parse_target(false);
  expect_name("in");
  stmt->expr = parse_tuple(false, "recursive", false);
  if (accept_name("if")) stmt->filter = parse_expression();
  stmt->recursive = accept_name("recursive");
  expect(Token::kBlockEnd, "'%}'");
  ++loops_;
  stmt->body = parse_body({"else", "endfor"});
  --loops_;
  if (accept_name("else")) {
    expect(Token::kBlockEnd, "'%}'");
    stmt->orelse = parse_body({"endfor"});
  }
  take();
  return stmt;
}

ExprPtr Parser::parse_one_target(bool allow_namespace) {
  if (accept_op("(")) {
    const Nesting nesting(*this);
    ExprPtr target = parse_target(false);
    expect_op(")");
    return target;
  }
  ExprPtr name = new_expr(Expr::kName);
  name->text = take_name("a variable name");
  static constexpr std::string_view kReserved[] = {"true", "false", "none",
                                                   "True", "False", "None"};
  if (std::find(std::begin(kReserved), std::end(kReserved), name->text) != std::end(kReserved)) {
    fail(fmt::format("cannot assign to '{}'", name->text));
  }
  if (!allow_namespace || !accept_op(".")) return finish(std::move(name));
  ExprPtr attribute = new_expr(Expr::kAttribute);
  attribute->text = take_name("an attribute name");
  attribute->parts.push_back(std::move(name));
  return finish(std::move(attribute));
}

ExprPtr Parser::parse_target(bool allow_namespace) {
  ExprPtr first = parse_one_target(allow_namespace);
  if (!is_op(",")) return first;
  ExprPtr tuple = new_expr(Expr::kTuple);
  tuple->parts.push_back(std::move(first));
  while (accept_op(",")) {
    if (current().kind != Token::kName && !is_op("(")) break;
    tuple->parts.push_back(parse_one_target(allow_namespace));
  }
  return finish(std::move(tuple));
}

std::unique_ptr<Stmt> Parser::parse_set() {
  auto stmt = new_stmt(Stmt::kSet);
  take();
  stmt->target = parse_target(true);
  if (accept_op("=")) {
    stmt->expr = parse_tuple(true, "", false);
    return stmt;
  }
  stmt->kind = Stmt::kSetBlock;
  if (is_op("|")) stmt->expr = parse_filters(nullptr, false);
  stmt->body = parse_block("endset");
  return stmt;
}

void Parser::parse_signature(Signature& signature) {
  expect_op("(");
  while (!is_op(")")) {
    if (!signature.names.empty()) expect_op(",");
    if (is_op(")")) break;
    signature.names.push_back(take_name("a parameter name"));
    if (accept_op("=")) {
      signature.defaults.push_back(parse_expression());
    } else if (!signature.defaults.empty()) {
      fail("parameter without a default follows one with a default");
    }
  }
  take();
}

void Parser::parse_callable_body(Stmt& stmt, std::string_view end) {
  signatures_.push_back(&stmt.signature);
  const int outer_loops = std::exchange(loops_, 0);
  stmt.body = parse_block(end);
  loops_ = outer_loops;
  signatures_.pop_back();
}

std::unique_ptr<Stmt> Parser::parse_macro() {
  auto stmt = new_stmt(Stmt::kMacro);
  take();
  stmt->text = take_name("a macro name");
  parse_signature(stmt->signature);
  parse_callable_body(*stmt, "endmacro");
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_call_block() {
  auto stmt = new_stmt(Stmt::kCall);
  take();
  if (is_op("(")) parse_signature(stmt->signature);
  stmt->expr = parse_expression();
  if (stmt->expr->kind != Expr::kCall) fail("expected a call");
  parse_callable_body(*stmt, "endcall");
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_with() {
  auto stmt = new_stmt(Stmt::kWith);
  take();
  while (current().kind != Token::kBlockEnd) {
    if (!stmt->assignments.empty()) expect_op(",");
    ExprPtr target = parse_one_target(false);
    expect_op("=");
    stmt->assignments.emplace_back(std::move(target), parse_expression());
  }
  stmt->body = parse_block("endwith");
  return stmt;
}

}  // namespace nereid::text::jinja
