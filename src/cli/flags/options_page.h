// The reference page of all options, docs/options.md.
#pragma once

#include <string>

namespace nereid::cli {

// Markdown. `nereid options` prints it.
std::string options_page();

}  // namespace nereid::cli
