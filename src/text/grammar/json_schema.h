// JSON Schema as grammar rules.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "text/grammar/expr.h"
#include "text/grammar/work_limit.h"

namespace nereid::text {

// White space between the parts of a JSON text, most characters in a row.
inline constexpr int32_t kMaxJsonBlanks = 8;

// Rules whose texts are JSON values that `schema` (draft 2020-12) allows, with these limits: the
// members that "properties" names come in its order and before all others, names of others have
// no escapes, and json_numbers.h limits digits. InvalidArgument begins with the JSON pointer of
// what is not supported, is wrong, or allows nothing.
StatusOr<Rules> json_schema_rules(const json::value& schema, WorkLimit& work);

// Rules of any JSON object.
Rules json_object_rules();

}  // namespace nereid::text
