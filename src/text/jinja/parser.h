// Tokens to syntax tree; grammar and precedence of Jinja 3.1.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace nereid::text::jinja {

// Statements are in parser.cc, expressions in parse_expr.cc. Throws Error with line and column.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Body parse();

 private:
  // Counts nesting during its life.
  class Nesting;

  const Token& current() const { return tokens_[at_]; }
  const Token& peek() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token take();
  bool is_op(std::string_view op) const;
  bool is_name(std::string_view name) const;
  bool accept_op(std::string_view op);
  bool accept_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  void expect(Token::Kind kind, std::string_view what);
  std::string take_name(std::string_view what);
  [[noreturn]] void fail(std::string message) const;
  [[noreturn]] void unexpected(std::string_view wanted) const;

  // Statements until a block tag named in `ends`, which becomes the current token.
  Body parse_body(std::initializer_list<std::string_view> ends);
  Body parse_block(std::string_view end);  // consumes {% end %}
  void parse_statement(Body& out);
  std::unique_ptr<Stmt> new_stmt(Stmt::Kind kind) const;
  std::unique_ptr<Stmt> parse_if();
  std::unique_ptr<Stmt> parse_for();
  std::unique_ptr<Stmt> parse_set();
  std::unique_ptr<Stmt> parse_macro();
  std::unique_ptr<Stmt> parse_call_block();
  std::unique_ptr<Stmt> parse_with();
  void parse_signature(Signature& signature);
  void parse_callable_body(Stmt& stmt, std::string_view end);
  ExprPtr parse_target(bool allow_namespace);
  ExprPtr parse_one_target(bool allow_namespace);
  void check_loop(std::string_view tag) const;

  ExprPtr new_expr(Expr::Kind kind) const;
  // Sets the depth; to be called once the parts are complete.
  ExprPtr finish(ExprPtr expr) const;
  ExprPtr make(Expr::Kind kind, ExprPtr a, ExprPtr b = nullptr) const;
  ExprPtr parse_expression(bool with_condition = true);
  ExprPtr parse_condition();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter);
  ExprPtr parse_primary();
  ExprPtr parse_literal_name();
  ExprPtr parse_number();
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_filters(ExprPtr expr, bool start_inline);
  ExprPtr parse_call(ExprPtr callee);
  ExprPtr parse_subscript(ExprPtr expr);
  ExprPtr parse_test(ExprPtr expr);
  ExprPtr parse_tuple(bool with_condition, std::string_view stop_name, bool in_parentheses);
  ExprPtr parse_list();
  ExprPtr parse_dict();
  CallArgs parse_args();
  std::string parse_dotted_name(std::string_view what);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;                       // `for` loops around the current statement
  std::vector<Signature*> signatures_;  // macros around the current expression
};

class Parser::Nesting {
 public:
  explicit Nesting(Parser& parser);
  ~Nesting() { --parser_.nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Parser& parser_;
};

}  // namespace nereid::text::jinja
