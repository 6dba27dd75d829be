// fill_template: fills the placeholders of a config.pbtxt, by the rules of Python's
// string.Template, as the script of the TensorRT-LLM backend.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid::cli {

using Substitutions = std::map<std::string, std::string, std::less<>>;

// Parses "name:value,name:value". A backslash makes the next character literal; the text is
// unescaped at the commas and again at the colons, so a comma inside a value needs one and a colon
// two. InvalidArgument names a part that is not one name and one value.
StatusOr<Substitutions> parse_substitutions(std::string_view text);

// ${name} and $name become their values, "$$" becomes "$"; names without a value stay.
std::string substitute(std::string_view text, const Substitutions& values);

// Names of the ${...} placeholders in `text`.
std::set<std::string> placeholders_of(std::string_view text);

// Fills `text` (the content of `path`) with `values`, and with the script's defaults (no queue
// limit, no queue delay). A name that `text` does not contain goes to `unused` when another
// template contains it, else InvalidArgument with the nearest name in `text`.
StatusOr<std::string> fill_config(std::string_view text, const std::string& path,
                                  const Substitutions& values, std::set<std::string>* unused);

}  // namespace nereid::cli
