// Readers of members of JSON request bodies, with errors that name the member, and base64.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json_members.h"
#include "base/status.h"

namespace nereid::front {

// Parses JSON whose numbers may also be NaN, Infinity and -Infinity (see non_finite() in
// json_text.h). `body` becomes the parsed text, which is in `marked` if it has any. The value's
// memory comes from `memory`; Unavailable when that is full.
StatusOr<json::value> parse_json_numbers(std::string_view& body, std::string& marked,
                                         size_t max_depth, const json::storage_ptr& memory = {});

// is_object() of a value from the functions of this file, where it holds for NaN, too.
bool is_json_object(const json::value& value);

// InvalidArgument: a request's body, parsed by parse_json_numbers(), is no object.
Status check_is_object(const json::value& root);

// The body as a JSON object, non-finite numbers allowed (see non_finite()). An empty body and other
// JSON are errors; InvalidArgument has the position, or what it is; Unavailable: `memory` is full.
StatusOr<json::value> parse_json_body(std::string_view body, const json::storage_ptr& memory = {});
// parse_json_body() that takes an empty array for an object without members, as the stock server
// does where all members may be absent.
StatusOr<json::value> parse_members_body(std::string_view body,
                                         const json::storage_ptr& memory = {});

// parse_members_body() on an event loop, for the bodies of settings: InvalidArgument for more bytes
// than an event loop may parse.
StatusOr<json::value> parse_short_body(std::string_view body);

// A member of the given type. nullopt when absent; InvalidArgument when it has another type.
StatusOr<std::optional<bool>> bool_member(const json::value& value, std::string_view key);
StatusOr<std::optional<std::string>> string_member(const json::value& value, std::string_view key);
StatusOr<std::optional<uint64_t>> uint_member(const json::value& value, std::string_view key);

// "Unable to parse '<key>': expected <wanted>, got a string".
Status wrong_member(std::string_view key, std::string_view wanted, const json::value& value);

}  // namespace nereid::front
