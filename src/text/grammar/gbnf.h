// Grammars in GBNF, the notation of llama.cpp.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/grammar/expr.h"

namespace nereid::text {

// Rules `name ::= ...` of "texts", [classes], '.', names, groups, '|', '*', '+', '?', {m,n} and
// comments; the text is one of `root`. InvalidArgument names line and reason.
StatusOr<Rules> gbnf_rules(std::string_view grammar);

// `texts` as a grammar of one rule.
std::string choice_gbnf(const std::vector<std::string>& texts);

}  // namespace nereid::text
