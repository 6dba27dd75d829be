// Completion scripts for shells. A script is begin(), a piece for each command, and end().
#pragma once

#include <span>
#include <string>

#include "cli/flags/command_text.h"

namespace nereid::cli {

enum class Shell { kBash, kZsh, kFish };

// The flags of `commands` are not read.
std::string begin_completions(Shell shell, std::span<const CommandText> commands);
std::string completions_of(Shell shell, const CommandText& command);
std::string end_completions(Shell shell);

}  // namespace nereid::cli
