// Grammars in GBNF, the notation of llama.cpp.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/grammar/expr.h"

namespace nereid::text {

// Rules `name ::= ...` of "texts", [classes], '.', names, groups, '|', '*', '+', '?', {m,n} and
// comments; `root` is the whole text. InvalidArgument names line and reason.
StatusOr<Rules> gbnf_rules(std::string_view grammar);

// A grammar of one rule whose texts are `texts`.
std::string choice_gbnf(const std::vector<std::string>& texts);

}  // namespace nereid::text
