// Man pages, in the macros of man(7).
#pragma once

#include <span>
#include <string>

#include "cli/flags/command_text.h"

namespace nereid::cli {

// nereid-COMMAND(1).
std::string man_page(const CommandText& command);
// nereid(1), with a line for each command; of these only name and help are read.
std::string man_page_of_all(const std::string& description, std::span<const CommandText> commands);

}  // namespace nereid::cli
