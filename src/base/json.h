// JSON (Boost.JSON) with bounded nesting and errors that say where.
#pragma once

#include <boost/json.hpp>
#include <filesystem>
#include <string_view>

#include "base/status.h"

namespace nereid {

namespace json = boost::json;

// Parses one JSON document. InvalidArgument: "<reason> at line L, column C"; Unavailable: `storage`
// or `temporary` has no memory. The value's memory comes from `storage`, that of the parser from
// `temporary`.
StatusOr<json::value> parse_json(std::string_view text, size_t max_depth = 128,
                                 json::storage_ptr storage = {}, json::storage_ptr temporary = {});
// The same for a document that is read and dropped: its parts are neither allocated nor freed one
// by one. What is moved out of it keeps all of it. All memory comes from `memory`.
StatusOr<json::value> parse_json_once(std::string_view text, size_t max_depth = 128,
                                      json::storage_ptr memory = {});

// Reads and parses a file; errors begin with its path.
StatusOr<json::value> read_json_file(const std::filesystem::path& path);

}  // namespace nereid
