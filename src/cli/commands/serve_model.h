// What `nereid serve` makes of a model and its flags: the values of the repository's templates.
#pragma once

#include <filesystem>

#include "cli/commands/serve_options.h"
#include "cli/repository/repository.h"

namespace nereid::cli {

// Where the tokenizer's files are, `scratch` where another chat template is asked for; empty when
// the model has none. InvalidArgument: its chat template does not parse, or --tokenizer has no
// files.
StatusOr<std::filesystem::path> find_tokenizer(const ServeOptions& options,
                                               const std::filesystem::path& scratch);

// What the templates need to know about this model and these flags; empty = the template's default.
StatusOr<TemplateValues> template_values(const ServeOptions& options,
                                         const std::filesystem::path& tokenizer);

}  // namespace nereid::cli
