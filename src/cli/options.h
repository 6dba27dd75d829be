// Flags shared by the commands that load a model: one declaration gives default, help, parse and
// check.
#pragma once

#include <CLI/App.hpp>
#include <filesystem>
#include <string>

#include "base/status.h"
#include "nereid/executor.h"

namespace nereid::cli {

struct ModelOptions {
  std::filesystem::path model_dir;
  ExecutorConfig executor;
  int64_t kv_cache_tokens = 0;  // 0 = sized from memory
  std::string log_level = "info";

  void declare(CLI::App& command);
  // Applies the log level and checks combinations. InvalidArgument names the flag.
  Status finish();
};

// Prints "nereid: <message>" to stderr and returns the exit code 1.
int fail(const Status& status);

}  // namespace nereid::cli
