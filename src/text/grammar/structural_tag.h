// Structural tags, the form of xgrammar: parts of a text that are held to schemas, grammars or
// regular expressions, between marks, in text that is free.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "text/grammar/expr.h"
#include "text/grammar/work_limit.h"

namespace nereid::text {

// Of {"format": {...}}, where a format is const_string, json_schema, regex, grammar, any_text,
// sequence, or, tag, triggered_tags or tags_with_separator, or of the older {"structures":
// [{"begin", "schema", "end"}], "triggers": [...]}. Free text ends at the first trigger in it.
// InvalidArgument begins with the JSON pointer of what is wrong or not supported.
StatusOr<Rules> structural_tag_rules(const json::value& tag, WorkLimit& work);

}  // namespace nereid::text
