// Structural tags in the form of xgrammar: free text with parts between markers that schemas,
// grammars or regular expressions constrain.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "text/grammar/expr.h"
#include "text/grammar/work_limit.h"

namespace nereid::text {

// Rules of {"format": {...}}, where a format is const_string, json_schema, regex, grammar,
// any_text, sequence, or, tag, triggered_tags or tags_with_separator, or of the older
// {"structures": [{"begin", "schema", "end"}], "triggers": [...]}. Free text ends at the first
// trigger in it. InvalidArgument begins with the JSON pointer of a fault or an unsupported format.
StatusOr<Rules> structural_tag_rules(const json::value& tag, WorkLimit& work);

}  // namespace nereid::text
