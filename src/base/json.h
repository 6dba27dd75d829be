// JSON parsing (Boost.JSON) with bounded nesting and errors with line and column.
#pragma once

#include <boost/json.hpp>
#include <filesystem>
#include <string_view>

#include "base/status.h"

namespace nereid {

namespace json = boost::json;

// Parses one JSON document. InvalidArgument: "<reason> at line L, column C"; Unavailable: a memory
// resource has no memory. The value's memory comes from `storage`, the parser's from `temporary`;
// both may be null: the heap.
StatusOr<json::value> parse_json(std::string_view text, size_t max_depth = 128,
                                 json::storage_ptr storage = {}, json::storage_ptr temporary = {});
// parse_json() for a document that is read and dropped: its parts are neither allocated nor freed
// one by one. A part moved out of it keeps all of its memory, which comes from `memory`.
StatusOr<json::value> parse_json_once(std::string_view text, size_t max_depth = 128,
                                      json::storage_ptr memory = {});

// Reads and parses a file; errors begin with its path.
StatusOr<json::value> read_json_file(const std::filesystem::path& path);

}  // namespace nereid
