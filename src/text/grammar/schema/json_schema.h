// JSON Schema as grammar rules.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "text/grammar/expr.h"
#include "text/grammar/work_limit.h"

namespace nereid::text {

// White space between the parts of a JSON text: at most this many characters.
inline constexpr int32_t kMaxJsonBlanks = 8;

// Rules whose texts are the JSON values that `schema` (draft 2020-12) allows, with these limits:
// members listed in "properties" come first, in its order; other names have no escapes; and
// json_numbers.h limits digits. InvalidArgument begins with the JSON pointer of a keyword that is
// unsupported, wrong, or allows no value.
StatusOr<Rules> json_schema_rules(const json::value& schema, WorkLimit& work);

// Rules of any JSON object.
Rules json_object_rules();

}  // namespace nereid::text
