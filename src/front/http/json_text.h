// Small JSON writing helpers for replies that are built as text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace nereid::front {

// Appends a quoted, escaped JSON string. Bytes that are not UTF-8 go out unchanged.
void append_json_string(std::string& out, std::string_view text);

// How many bytes that is.
size_t json_string_size(std::string_view text);

// Appends the shortest decimal text that reads back as `value`; whole numbers keep ".0" and
// exponents have no plus sign (1e300). NaN and infinities come out as NaN, Infinity, -Infinity,
// as the stock server prints them.
void append_json_double(std::string& out, double value);

// JSON has no such numbers, but they are written as above and taken where they are written.
// `text` with each NaN, Infinity and -Infinity outside of strings as a value that non_finite()
// knows; nullopt when there is none.
std::optional<std::string> mark_non_finite(std::string_view text);
std::optional<double> non_finite(const json::value& value);

// Appends compact JSON text of `value` with doubles as above (Boost.JSON would print 5E-1 for 0.5),
// but for infinities, which are 1e999 and -1e999, and NaN, which is null: the text is valid JSON.
// Long numbers (see long_number()) are written with all of their digits.
void append_json(std::string& out, const json::value& value);
void append_json(std::string& out, const json::object& object);  // as a value it would be a copy
std::string json_text(const json::value& value);
std::string json_text(const json::object& object);

// The first key that an object of `text`, which must be valid JSON, has twice; nullopt without one.
// Parsers keep one of the two silently, and not all the same one.
std::optional<std::string> duplicate_key(std::string_view text);

// "a string", "an integer", ... for messages.
std::string_view json_kind_name(const json::value& value);

// {"error":"<message>"}, the KServe error body.
std::string kserve_error_body(std::string_view message);

}  // namespace nereid::front
