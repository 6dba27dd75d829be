// nereid pull, list, rm: models by name, and the folder that keeps them.
#include <CLI/Option.hpp>
#include <chrono>
#include <memory>

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/commands/commands.h"
#include "cli/flags/options.h"
#include "cli/hub/find_model.h"
#include "convert/pretty_json.h"

namespace nereid::cli {
namespace {

// Exit codes of `nereid pull` and `nereid rm`, for scripts.
int hub_exit_code(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return 3;
    case absl::StatusCode::kPermissionDenied:
      return 4;
    case absl::StatusCode::kDataLoss:
      return 5;
    case absl::StatusCode::kResourceExhausted:
      return 6;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return 7;
    default:
      return 1;
  }
}

struct HubOptions {
  std::string model;
  std::filesystem::path cache_dir;
  int jobs = 4;
  bool all = false, quiet = false, as_json = false;
};

void declare_cache(CLI::App& command, HubOptions& options) {
  command.add_option("--cache-dir", options.cache_dir,
                     "folder whose models/ has what was pulled; default: $NEREID_CACHE_DIR, else "
                     "nereid in $XDG_CACHE_HOME or ~/.cache");
}

Status pull(const HubOptions& options) {
  ASSIGN_OR_RETURN(const hub::ModelName model, hub::parse_model_name(options.model));
  ASSIGN_OR_RETURN(hub::HubSettings settings, hub_settings(options.cache_dir));
  settings.files_at_once = options.jobs;
  if (options.quiet) RETURN_IF_ERROR(set_log_level("error"));
  ASSIGN_OR_RETURN(const hub::Pulled pulled, pull_model(settings, model, /*asks_hub=*/true));
  const std::string commit = pulled.model.commit.substr(0, 12);
  if (pulled.model.is_foreign)
    log_info("{} ({}) is in the cache of the hub's own tools", model.text(), commit);
  else if (pulled.downloaded == 0)
    log_info("{} ({}) is complete; nothing was downloaded", model.text(), commit);
  else
    log_info("pulled {} of {} ({})", size_text(static_cast<double>(pulled.downloaded)),
             model.text(), commit);
  fmt::print("{}\n", pulled.model.path.string());
  return ok();
}

std::string state_of(const hub::ListedModel& row) {
  if (row.is_foreign) return row.is_complete ? "hub cache" : "hub cache, not complete";
  return row.is_complete ? "complete" : "not complete";
}

std::string date_of(std::filesystem::file_time_type time) {
  const auto system =
      std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::file_clock::to_sys(time));
  return fmt::format("{:%Y-%m-%d %H:%M}",
                     fmt::localtime(std::chrono::system_clock::to_time_t(system)));
}

json::value json_of(const hub::ListedModel& row) {
  return {{"model", row.model},
          {"commit", row.commit},
          {"revisions", json::value_from(row.revisions)},
          {"bytes", row.bytes},
          {"complete", row.is_complete},
          {"hub_cache", row.is_foreign},
          {"path", row.path.string()}};
}

Status list(const HubOptions& options) {
  ASSIGN_OR_RETURN(const hub::HubSettings settings, hub_settings(options.cache_dir));
  const std::vector<hub::ListedModel> rows = hub::list_models(settings);
  if (options.as_json) {
    json::array all;
    for (const hub::ListedModel& row : rows) all.push_back(json_of(row));
    fmt::print("{}\n", convert::pretty_json(json::object{{"models", all}}));
    return ok();
  }
  size_t width = 5;
  for (const hub::ListedModel& row : rows) width = std::max(width, row.model.size());
  fmt::print("{:{}}  {:12}  {:>8}  {:16}  {}\n", "MODEL", width, "REVISION", "SIZE", "CHANGED",
             "STATE");
  for (const hub::ListedModel& row : rows) {
    const std::string revision =
        row.revisions.empty() ? row.commit.substr(0, 12) : row.revisions.front().substr(0, 12);
    fmt::print("{:{}}  {:12}  {:>8}  {:16}  {}\n", row.model, width, revision,
               size_text(static_cast<double>(row.bytes)), date_of(row.changed), state_of(row));
  }
  return ok();
}

Status remove(const HubOptions& options) {
  ASSIGN_OR_RETURN(const hub::ModelName model, hub::parse_model_name(options.model));
  if (!model.file.empty())
    return invalid_argument("{}: a revision is removed as a whole; leave out ':{}'", model.text(),
                            model.file);
  ASSIGN_OR_RETURN(const hub::HubSettings settings, hub_settings(options.cache_dir));
  ASSIGN_OR_RETURN(const int64_t bytes, hub::remove_model(settings, model, options.all));
  fmt::print("removed {}: {}\n", options.all ? model.id() : model.text(),
             size_text(static_cast<double>(bytes)));
  return ok();
}

// Runs `run` as the command's callback.
template <class Options>
void call_with(CLI::App& command, std::shared_ptr<Options> options, int& exit_code,
               Status (*run)(const Options&)) {
  command.callback([options, &exit_code, run] {
    const Status status = run(*options);
    if (status.ok()) return;
    fail(status);
    exit_code = hub_exit_code(status);
  });
}

}  // namespace

void add_models(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<HubOptions>();
  CLI::App* const pull_command =
      app.add_subcommand("pull", "download a model of the Hugging Face hub, and print its folder");
  pull_command
      ->add_option("model", options->model,
                   "[hf://]ORG/NAME[@REVISION], with :FILE.gguf for a GGUF file of it")
      ->required();
  declare_cache(*pull_command, *options);
  pull_command->add_option("-j,--jobs", options->jobs, "files downloaded at once")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  pull_command->add_flag("-q,--quiet", options->quiet, "log errors only");
  pull_command->footer(
      "Exit codes: 0; 3 no such model, revision or file; 4 no access (HF_TOKEN); 5 wrong checksum; "
      "6 disk full; 7 network, or a folder that cannot be written; 130 Ctrl-C; 1 anything else.");
  call_with(*pull_command, options, exit_code, pull);

  auto listed = std::make_shared<HubOptions>();
  CLI::App* const list_command = app.add_subcommand("list", "list the models that were pulled");
  declare_cache(*list_command, *listed);
  list_command->add_flag("--json", listed->as_json, "as a JSON object");
  call_with(*list_command, listed, exit_code, list);

  auto removed = std::make_shared<HubOptions>();
  CLI::App* const remove_command = app.add_subcommand("rm", "remove a model that was pulled");
  remove_command->add_option("model", removed->model, "[hf://]ORG/NAME[@REVISION]")->required();
  declare_cache(*remove_command, *removed);
  remove_command->add_flag("--all", removed->all, "all revisions of it, unfinished pulls too");
  call_with(*remove_command, removed, exit_code, remove);
}

}  // namespace nereid::cli
