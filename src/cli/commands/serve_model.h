// Template values for the repository that `nereid serve` makes of a model and its flags.
#pragma once

#include <filesystem>

#include "cli/commands/serve_options.h"
#include "cli/repository/repository.h"

namespace nereid::cli {

// The folder with the tokenizer's files, `scratch` if another chat template is given; empty
// when the model has none. InvalidArgument: its chat template does not parse, or
// --tokenizer has no files.
StatusOr<std::filesystem::path> find_tokenizer(const ServeOptions& options,
                                               const std::filesystem::path& scratch);

// The templates' values for this model and these flags; an empty one is the template's default.
StatusOr<TemplateValues> template_values(const ServeOptions& options,
                                         const std::filesystem::path& tokenizer);

}  // namespace nereid::cli
