// Flags shared by the commands that load a model: one declaration for default, help,
// parsing and check.
#pragma once

#include <CLI/App.hpp>
#include <filesystem>
#include <string>

#include "base/status.h"
#include "cli/flags/config_file.h"
#include "config/engine_options.h"
#include "nereid/executor.h"

namespace nereid::cli {

struct ModelOptions {
  std::filesystem::path model_dir;
  ExecutorConfig executor = config::served_defaults();
  config::Options server;  // of the command itself, for --print-config
  std::string log_level = "info";
  bool print_config = false;
  OptionSources sources;  // of the command line; empty: not recorded
  std::string hub_id;     // ORG/NAME of a model of the hub; empty: a path

  void declare(CLI::App& command);
  // Records where the values are from, and reads the file. To be called first in the command's
  // callback. Empty `file`: none.
  Status read_config(CLI::App& command, const std::filesystem::path& file);
  // Sets the log level, finds a model of the hub (model_dir becomes its path), and checks
  // combinations. With print_config prints the options instead, without a download, and throws
  // CLI::Success. InvalidArgument names the flag.
  Status finish();

 private:
  // Finds model_dir. An address of the hub stays one with print_config if the caches lack it.
  Status find_model();
  Status print_options();
  CLI::App* command_ = nullptr;
};

// Prints "nereid: <message>" to stderr and returns the exit code 1.
int fail(const Status& status);

}  // namespace nereid::cli
