// Flags shared by the commands that load a model: one declaration for default, help,
// parsing and check.
#pragma once

#include <CLI/App.hpp>
#include <filesystem>
#include <string>

#include "base/status.h"
#include "config/engine_options.h"
#include "nereid/executor.h"

namespace nereid::cli {

struct ModelOptions {
  std::filesystem::path model_dir;
  ExecutorConfig executor = config::served_defaults();
  config::Options server;  // of the command itself, for --print-config
  std::string log_level = "info";
  bool print_config = false;

  void declare(CLI::App& command);
  // Sets the log level and checks combinations. InvalidArgument names the flag.
  Status finish();
};

// Prints "nereid: <message>" to stderr and returns the exit code 1.
int fail(const Status& status);

}  // namespace nereid::cli
