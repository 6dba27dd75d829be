// Flags shared by the commands that load a model: one declaration for default, help,
// parsing and check.
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
  int64_t kv_cache_tokens = 0;  // 0 = by memory
  // Values of the flags below as words; finish() converts them into `executor`.
  std::string scheduler_policy = "max_utilization";
  std::string chunking_policy = "first_come_first_served";
  std::string pause_policy = "recompute";
  std::string kv_cache_type = "auto";
  double kv_cache_fraction = 0;  // 0 = not given
  bool no_chunked_context = false, no_kv_cache_reuse = false, no_overlap = false;
  std::string log_level = "info";

  void declare(CLI::App& command);
  // Sets the log level and checks combinations. InvalidArgument names the flag.
  Status finish();

 private:
  void declare_machine(CLI::App& command);  // adds the flags of model and device
  void declare_limits(CLI::App& command);
  void declare_policies(CLI::App& command);
  void declare_speculation(CLI::App& command);
  void declare_kv_cache(CLI::App& command);
};

// Prints "nereid: <message>" to stderr and returns the exit code 1.
int fail(const Status& status);

}  // namespace nereid::cli
