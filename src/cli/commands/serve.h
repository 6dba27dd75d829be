// `nereid serve` for other commands: with flags that they translate, or in their own process.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cli/commands/serve_options.h"

namespace nereid::cli {

// Writes the model repository of a model whose options are finished into the empty folder
// `repository`, and completes options.process for it. False: the model has no text, only tokens.
StatusOr<bool> fill_repository(ServeOptions& options, const std::filesystem::path& repository);

// Serves until a signal; `words` are a model and flags of `nereid serve`. `when_ready` is called
// with the process's URL once all ports answer. Returns the exit code.
int serve_main(const std::vector<std::string>& words,
               const std::function<void(const std::string& url)>& when_ready);

}  // namespace nereid::cli
