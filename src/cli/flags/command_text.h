// Flags of a command for man pages and completions, from either kind of command line.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/option.h"

namespace nereid::cli {

struct FlagText {
  std::vector<std::string> names;  // with dashes; a positional word has one name without
  std::string value;               // placeholder and default, "N (0 to 64) [4]"; "" = no value
  std::vector<std::string> choices;
  std::string group;
  std::string help;

  bool is_word() const { return !names[0].starts_with('-'); }
};

struct CommandText {
  std::string name;  // behind "nereid"
  std::string help;  // one line
  std::vector<FlagText> flags;
  std::string notes;  // the last paragraph of --help
};

// The flags of a subcommand, in the order of their declaration.
CommandText command_text(const CLI::App& command);
// The flags of a tool and its positional words, separated by blanks. `help`: one line.
CommandText command_text(const std::string& name, const std::string& help,
                         const config::Options& options, std::string_view words = "");

}  // namespace nereid::cli
