// Grammars in the notation of Lark.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/grammar/expr.h"

namespace nereid::text {

// Rules `name: ...` and terminals `NAME: ...` of "texts", /expressions/ (both with the flag i,
// expressions with s too), ranges "a".."z", names, groups, [optional parts], '|', '?', '*', '+',
// ~n, ~n..m, aliases and priorities, which say nothing here; %ignore, and %import of terminals of
// `common`. The text is one of `start`. It is read as by Lark's dynamic lexer: a terminal need not
// be the longest one. A rule may begin with itself. InvalidArgument names line and reason.
StatusOr<Rules> lark_rules(std::string_view grammar);

// Of a grammar in Lark's notation or in GBNF, which its first rule tells apart.
StatusOr<Rules> ebnf_rules(std::string_view grammar);

}  // namespace nereid::text
