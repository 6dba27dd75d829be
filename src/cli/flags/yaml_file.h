// YAML 1.1 files as JSON values (libyaml). Plain scalars become null, booleans and numbers by YAML
// 1.1's core types; quoted ones are strings.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace nereid::cli {

// Parses one document; an empty one is null. Aliases are expanded. InvalidArgument: a syntax error
// with its line, a second document, a key that is no string or repeats, nesting beyond 64, or more
// than 100,000 values after expansion.
StatusOr<json::value> parse_yaml(std::string_view text);

// parse_yaml() for a file of at most 1 MiB; errors begin with its path.
StatusOr<json::value> read_yaml_file(const std::filesystem::path& path);

}  // namespace nereid::cli
