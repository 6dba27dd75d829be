// Sections of the reference page of all commands' flags, docs/flags.md.
#pragma once

#include <set>
#include <string>

#include "cli/flags/command_text.h"

namespace nereid::cli {

// Names of the flags that docs/options.md has: of the engine, and of `nereid serve`.
std::set<std::string> flags_of_options_page();

// Markdown: a heading, words and tables of the command's flags. `elsewhere`: names of flags that
// are left out, for which the section names docs/options.md.
std::string flags_section(const CommandText& command, const std::set<std::string>& elsewhere);

}  // namespace nereid::cli
