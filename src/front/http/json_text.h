// JSON writing helpers for replies built as text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace nereid::front {

// Appends a quoted, escaped JSON string. Bytes that are not UTF-8 are unchanged.
void append_json_string(std::string& out, std::string_view text);

// The number of bytes that it appends.
size_t json_string_size(std::string_view text);

// Appends the shortest decimal text that reads back as `value`; whole numbers keep ".0" and
// exponents have no plus sign (1e300). NaN and infinities become NaN, Infinity, -Infinity, as
// in the stock server.
void append_json_double(std::string& out, double value);

// Support for NaN, Infinity and -Infinity in requests, which JSON does not have: `text` with each
// of them outside of strings replaced by a value that non_finite() recognises; nullopt without any.
std::optional<std::string> mark_non_finite(std::string_view text);
std::optional<double> non_finite(const json::value& value);

// Appends compact JSON text of `value` with doubles as above (Boost.JSON would print 5E-1 for 0.5),
// except infinities as 1e999 and -1e999, and NaN as null: the text is valid JSON. Long numbers (see
// long_number()) keep all digits.
void append_json(std::string& out, const json::value& value);
void append_json(std::string& out, const json::object& object);  // avoids the copy into a value
std::string json_text(const json::value& value);
std::string json_text(const json::object& object);

// The first duplicate key of an object in `text`, which must be valid JSON; nullopt without one.
// Parsers keep one of the two silently, and not all the same one.
std::optional<std::string> duplicate_key(std::string_view text);

// "a string", "an integer", ... for messages.
std::string_view json_kind_name(const json::value& value);

// {"error":"<message>"}, the KServe error body.
std::string kserve_error_body(std::string_view message);

}  // namespace nereid::front
