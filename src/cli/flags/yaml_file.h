// YAML 1.1 files as JSON values (libyaml). Plain words are null, booleans and numbers by the rules
// of YAML 1.1's core types; everything quoted is text.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace nereid::cli {

// One document; an empty one is null. Aliases are expanded. InvalidArgument: a syntax error with
// its line, a second document, a key that is no text or that repeats, nesting beyond 64, or more
// than 100,000 values after expansion.
StatusOr<json::value> parse_yaml(std::string_view text);

// The same for a file of at most 1 MiB; errors begin with its path.
StatusOr<json::value> read_yaml_file(const std::filesystem::path& path);

}  // namespace nereid::cli
