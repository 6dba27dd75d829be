// The syntax tree of a template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace nereid::text::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, star_star;  // *list and **dict; null when absent
};

struct Expr {
  enum Kind {
    kConst,      // value
    kName,       // text
    kList,       // parts
    kTuple,      // parts
    kDict,       // parts: key, value, key, value, ...
    kNot,        // parts[0]
    kNegate,     // parts[0]
    kPlus,       // parts[0]
    kBinary,     // parts[0] text parts[1]; text is + - * / // % **
    kAnd,        // parts[0], parts[1]
    kOr,         // parts[0], parts[1]
    kCompare,    // parts[0] ops[0] parts[1] ops[1] parts[2] ...
    kConcat,     // parts
    kCondition,  // parts: test, then, else (null: undefined)
    kAttribute,  // parts[0].text
    kItem,       // parts[0][parts[1]]
    kSlice,      // parts[0][parts[1]:parts[2]:parts[3]], each but the first may be null
    kCall,       // parts[0](args)
    kFilter,     // parts[0] | text(args); parts[0] is null for the text of a block
    kTest,       // parts[0] is text(args), negated or not
  };
  Kind kind;
  int line = 0;
  int depth = 1;  // of the tree; bounded
  std::string text;
  Value value;
  std::vector<ExprPtr> parts;
  std::vector<std::string> ops;
  CallArgs args;
  bool negated = false;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

// Parameters of a macro or call block; defaults belong to the last ones.
struct Signature {
  std::vector<std::string> names;
  std::vector<ExprPtr> defaults;
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
};

struct Stmt {
  enum Kind {
    kText,      // text
    kPrint,     // expr
    kIf,        // branches, orelse
    kFor,       // target in expr if filter; body, orelse, recursive
    kSet,       // target = expr
    kSetBlock,  // target = text of body, through expr (a filter) when not null
    kMacro,     // text (its name), signature, body
    kCall,      // expr (the call), signature, body
    kFilter,    // expr (the filter), body
    kWith,      // assignments, body
    kScope,     // body in a scope of its own (generation blocks)
    kBreak,
    kContinue,
  };
  Kind kind;
  int line = 0;
  std::string text;
  ExprPtr expr;
  ExprPtr target;  // kName, kTuple of targets, or kAttribute of a namespace
  ExprPtr filter;
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::vector<std::pair<ExprPtr, ExprPtr>> assignments;
  Signature signature;
  Body body, orelse;
  bool recursive = false;
};

}  // namespace nereid::text::jinja
