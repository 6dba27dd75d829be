// Turns one model folder into a Triton model repository: the five models of the TensorRT-LLM
// backend, from the templates in all_models/ that are embedded in the binary.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid::cli {

using TemplateValues = std::map<std::string, std::string, std::less<>>;

// Replaces each ${name} by its value. InvalidArgument lists the names that have no value.
StatusOr<std::string> fill_template(std::string_view text, const TemplateValues& values);

// A value as it stands inside the double quotes of a protobuf text file.
std::string escape_text(std::string_view value);

// Writes <dir>/<model>/config.pbtxt and <dir>/<model>/1/ for every template.
Status write_repository(const std::filesystem::path& dir, const TemplateValues& values);

}  // namespace nereid::cli
