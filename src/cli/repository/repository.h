// Writes a Triton model repository for one model folder: the five models of the TensorRT-LLM
// backend, from the templates in all_models/ that are embedded in the binary.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/tools/fill_template.h"

namespace nereid::cli {

using TemplateValues = Substitutions;

// Model name and text of its config.pbtxt, in the order in which a request passes them.
using TemplateTexts = std::vector<std::pair<std::string_view, std::string_view>>;
const TemplateTexts& repository_templates();

// Replaces each ${name} by its value. InvalidArgument lists the names without a value.
StatusOr<std::string> fill_template(std::string_view text, const TemplateValues& values);

// `value` escaped for the double quotes of protobuf's text format.
std::string escape_text(std::string_view value);

// The model on token ids; the others convert between text and ids.
inline constexpr std::string_view kTokenModel = "tensorrt_llm";

// Writes <dir>/<model>/config.pbtxt and <dir>/<model>/1/ for every template; without `has_text`
// for kTokenModel alone.
Status write_repository(const std::filesystem::path& dir, const TemplateValues& values,
                        bool has_text = true);

}  // namespace nereid::cli
