// Grammars in the notation of Lark.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/grammar/expr.h"

namespace nereid::text {

// Rules `name: ...` and terminals `NAME: ...` of "texts", /expressions/ (both with the flag i,
// expressions with s too), ranges "a".."z", names, groups, [optional parts], '|', '?', '*', '+',
// ~n, ~n..m, aliases and priorities, which have no effect; %ignore, and %import of terminals of
// `common`. `start` is the whole text. Terminals match as in Lark's dynamic lexer: not only the
// longest match. Left recursion is allowed. InvalidArgument names line and reason.
StatusOr<Rules> lark_rules(std::string_view grammar);

// Rules of a grammar in Lark's notation or in GBNF, distinguished by its first rule.
StatusOr<Rules> ebnf_rules(std::string_view grammar);

}  // namespace nereid::text
