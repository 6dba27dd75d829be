// Flags of a command line from the declarations of options.
#pragma once

#include <CLI/App.hpp>

#include "config/option.h"

namespace nereid::cli {

// One flag for each option that has one, in its group, with its default, check and environment
// variable. The values of `options` must outlive the command.
void declare_flags(CLI::App& command, const config::Options& options);

}  // namespace nereid::cli
