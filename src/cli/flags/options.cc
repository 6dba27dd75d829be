#include "cli/flags/options.h"

#include <CLI/Error.hpp>
#include <CLI/Option.hpp>
#include <cstdio>
#include <map>
#include <span>

#include <fmt/ranges.h>

#include "base/log.h"
#include "cli/flags/declare_flags.h"
#include "cli/flags/missing_path.h"
#include "cli/hub/find_model.h"
#include "convert/inspect.h"
#include "convert/pretty_json.h"
#include "convert/random_model.h"
#include "runtime/engine_limits.h"

namespace nereid::cli {
namespace {

// Where the values of `options` are from: flag, environment, line of a file, or default, with what
// a default that is chosen later will be.
void add_sources(const CLI::App& command, const OptionSources& sources,
                 const config::Options& options, json::object& to) {
  for (const config::Option& option : options) {
    if (!*option.flag) continue;
    const CLI::Option* const flag =
        command.get_option_no_throw(std::string(config::first_flag(option)));
    const std::string source = sources.of(flag);
    to[option.name] = source == "default" && *option.default_text
                          ? "default: " + config::default_of(option, options, &config::Option::name)
                          : source;
  }
}

}  // namespace

// The options in effect for this model: an object of sections, "engine" as the C API reads it, and
// "from", where each value is from.
Status ModelOptions::print_options() {
  json::object from = {{"model", sources.of(command_->get_option("model"))}};
  add_sources(*command_, sources, config::engine_options(executor), from);
  add_sources(*command_, sources, server, from);
  std::map<std::string, std::string> given;
  for (const config::Option& option : config::engine_options(executor))
    given[option.name] = config::text_of(option);
  ExecutorConfig limited = executor;
  if (hub::is_hub_address(model_dir.string()))
    log_warn("{} is not in the cache; the options are without the limits of its files",
             model_dir.string());
  else
    RETURN_IF_ERROR(runtime::apply_engine_limits(model_dir, limited).status());
  const config::Options engine = config::engine_options(limited);
  for (const config::Option& option : engine) {
    json::value* const source = from.if_contains(option.name);
    if (source && !source->get_string().starts_with("default") &&
        config::text_of(option) != given[option.name])
      *source = fmt::format("model, in place of {}", std::string(source->get_string()));
  }
  from["log_level"] = sources.of(command_->get_option("--log-level"));
  json::object sections = {
      {"model", model_dir.string()}, {"log_level", log_level}, {"engine", config::to_json(engine)}};
  if (!server.empty()) sections["server"] = config::to_json(server);
  sections["from"] = std::move(from);
  fmt::print("{}\n", convert::pretty_json(sections));
  return ok();
}

Status ModelOptions::read_config(CLI::App& command, const std::filesystem::path& file) {
  sources = OptionSources(command);
  if (file.empty()) return ok();
  if (const Status status = apply_config_file(command, file, sources); !status.ok()) {
    const CLI::Option* const config = command.get_option_no_throw("--config");
    return config && sources.is_of_environment(config) ? annotate(status, config->get_envname())
                                                       : status;
  }
  RETURN_IF_ERROR(set_log_level(log_level));
  log_info("options of {}", file.string());
  return ok();
}

void ModelOptions::declare(CLI::App& command) {
  command_ = &command;
  const std::span<const std::string> names = convert::random_model_names();
  command
      .add_option("model", model_dir,
                  fmt::format("checkpoint folder, engine or .gguf file, or hf://ORG/NAME[@REVISION]"
                              "[:FILE.gguf] of the Hugging Face hub; with --random-weights also {}",
                              fmt::join(names, ", ")))
      ->required();  // finish() looks whether it is there
  declare_flags(command, config::engine_options(executor));
  command.add_option("--log-level", log_level, "debug | info | warn | error | off")
      ->envname("NEREID_LOG_LEVEL")
      ->capture_default_str();
  command.add_flag(
      "--print-config", print_config,
      "print all options with the values that are in effect and where each is from, as JSON, and "
      "exit");
  command.footer(
      "Each flag that has a group can be set by an environment variable, too: "
      "NEREID_MAX_BATCH_SIZE=8 is --max-batch-size 8. The command line counts more. All options "
      "are in docs/options.md.");
}

Status ModelOptions::find_model() {
  if (const std::string address = model_dir.string(); hub::is_hub_address(address)) {
    ASSIGN_OR_RETURN(const hub::ModelName model, hub::parse_model_name(address));
    hub_id = model.id();
    if (print_config) {
      ASSIGN_OR_RETURN(const auto cached, find_cached_model(address, executor.cache_dir));
      if (!cached) return ok();
      model_dir = *cached;
    } else {
      ASSIGN_OR_RETURN(model_dir, find_hub_model(address, executor.cache_dir));
    }
  }
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
  return convert::check_is_model(model_dir);
}

Status ModelOptions::finish() {
  RETURN_IF_ERROR(set_log_level(log_level));
  if (const Status status = find_model(); !status.ok()) {
    const CLI::Option* const model = command_->get_option("model");
    return sources.is_of_environment(model) ? annotate(status, model->get_envname()) : status;
  }
  if (!print_config) return ok();
  if (sources.is_empty()) sources = OptionSources(*command_);
  RETURN_IF_ERROR(print_options());
  throw CLI::Success();
}

int fail(const Status& status) {
  std::fprintf(stderr, "nereid: %s\n", std::string(message(status)).c_str());
  return 1;
}

}  // namespace nereid::cli
