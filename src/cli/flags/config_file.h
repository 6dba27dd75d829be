// Options of a command from a file in TOML, which count less than the command line and the
// environment, and more than the defaults.
#pragma once

#include <CLI/App.hpp>
#include <filesystem>
#include <map>
#include <string>

#include "base/status.h"

namespace nereid::cli {

// Where the options of a command have their values from.
class OptionSources {
 public:
  // To be called when the command line is parsed, before any file.
  explicit OptionSources(const CLI::App& command);
  OptionSources() = default;

  // "flag --x", "environment NEREID_X", "FILE:LINE", "default".
  std::string of(const CLI::Option* option) const;
  bool is_empty() const { return sources_.empty(); }
  bool is_of_environment(const CLI::Option* option) const {
    return of(option).starts_with("environment ");
  }
  bool has(const CLI::Option* option) const { return sources_.contains(option); }
  void set(const CLI::Option* option, std::string source);

 private:
  std::map<const CLI::Option*, std::string> sources_;
};

// Gives each option of `command` that has no value yet the one of the file, as if it stood on the
// command line. Keys are the flags' names without dashes in front, '_' and '-' alike; a positional
// word is a key, too; lists are for flags that may be repeated. InvalidArgument: "FILE:LINE: ..."
// with the key and what is allowed; unknown keys with the nearest one.
Status apply_config_file(CLI::App& command, const std::filesystem::path& file,
                         OptionSources& sources);

// nereid/nereid.toml in $XDG_CONFIG_HOME (else ~/.config), else in /etc; empty: neither is there.
std::filesystem::path default_config_file();

}  // namespace nereid::cli
