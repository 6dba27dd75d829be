// Flags of the commands that load a model: the options of the engine, and the model itself.
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
  // Applies the log level and looks at the model. InvalidArgument names the flag. With
  // --print-config it prints all options and throws CLI::Success, which ends the command.
  Status finish();
};

// Prints "nereid: <message>" to stderr and returns the exit code 1.
int fail(const Status& status);

}  // namespace nereid::cli
