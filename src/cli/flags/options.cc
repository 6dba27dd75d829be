#include "cli/flags/options.h"

#include <CLI/Error.hpp>
#include <CLI/Option.hpp>
#include <cstdio>
#include <span>

#include <fmt/ranges.h>

#include "base/log.h"
#include "cli/flags/declare_flags.h"
#include "cli/flags/missing_path.h"
#include "convert/inspect.h"
#include "convert/pretty_json.h"
#include "convert/random_model.h"
#include "runtime/engine_limits.h"

namespace nereid::cli {
namespace {

// The options in effect for this model: an object of sections, "engine" as the C API reads it.
Status print_options(const ModelOptions& options) {
  ExecutorConfig executor = options.executor;
  RETURN_IF_ERROR(runtime::apply_engine_limits(options.model_dir, executor).status());
  json::object sections = {{"engine", config::to_json(config::engine_options(executor))}};
  if (!options.server.empty()) sections["server"] = config::to_json(options.server);
  fmt::print("{}\n", convert::pretty_json(sections));
  return ok();
}

}  // namespace

void ModelOptions::declare(CLI::App& command) {
  const std::span<const std::string> names = convert::random_model_names();
  command
      .add_option("model", model_dir,
                  fmt::format("checkpoint folder, engine or .gguf file; with --random-weights "
                              "also {}",
                              fmt::join(names, ", ")))
      ->required();  // finish() looks whether it is there
  declare_flags(command, config::engine_options(executor));
  command.add_option("--log-level", log_level, "debug | info | warn | error | off")
      ->capture_default_str();
  command.add_flag("--print-config", print_config,
                   "print all options with the values that are in effect, as JSON, and exit");
  command.footer(
      "Each flag that has a group can be set by an environment variable, too: "
      "NEREID_MAX_BATCH_SIZE=8 is --max-batch-size 8. The command line counts more. All options "
      "are in docs/options.md.");
}

Status ModelOptions::finish() {
  RETURN_IF_ERROR(set_log_level(log_level));
  if (std::error_code error; !exists(model_dir, error)) {  // then it is a name
    if (!executor.random_weights) return check_exists("model", model_dir.string());
    ASSIGN_OR_RETURN(model_dir, convert::random_model_dir(model_dir.string(), executor.cache_dir));
  }
  const std::string name = model_dir.extension().string();
  if (std::error_code error; std::filesystem::is_regular_file(model_dir, error) &&
                             (name == ".safetensors" || name == ".bin" || name == ".json" ||
                              name == ".pth" || name == ".pt"))
    return invalid_argument("model: {} is one file of a model; give the folder that it is in",
                            model_dir.string());
  RETURN_IF_ERROR(convert::check_is_model(model_dir));
  if (!print_config) return ok();
  RETURN_IF_ERROR(print_options(*this));
  throw CLI::Success();
}

int fail(const Status& status) {
  std::fprintf(stderr, "nereid: %s\n", std::string(message(status)).c_str());
  return 1;
}

}  // namespace nereid::cli
