#include "cli/repository/repository_check.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <tuple>

#include "backend/executor_config/executor_config.h"
#include "backend/parameters/parameters.h"
#include "base/file.h"
#include "base/json.h"
#include "base/nearest.h"
#include "cli/repository/config_text_check.h"
#include "cli/repository/ensemble_text_check.h"
#include "cli/repository/process_layout.h"
#include "cli/repository/server_check.h"
#include "server/scripts/known_scripts.h"

namespace nereid::cli {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxConfigBytes = 4 << 20;

std::vector<std::string> folders_in(const fs::path& dir) {
  std::vector<std::string> out;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const std::string name = it->path().filename().string();
    if (it->is_directory(ignored) && !name.starts_with('.')) out.push_back(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

bool is_version(const std::string& name) {
  return !name.empty() && name[0] != '0' && name.find_first_not_of("0123456789") == name.npos;
}

// Name, parameters and instance groups of a configuration, as the core gives them to backends.
json::object settings_json(const std::string& name, const TextField& config) {
  json::object parameters;
  for (const auto* entry : config.all("parameters")) {
    const TextField* value = entry->find("value");
    parameters[entry->text("key")] = {
        {"string_value", value == nullptr ? "" : value->text("string_value")}};
  }
  json::array groups;
  for (const auto* group : config.all("instance_group")) {
    const std::string count = group->text("count");
    json::array gpus;
    for (const auto* gpu : group->all("gpus")) gpus.emplace_back(std::atoll(gpu->value.c_str()));
    groups.push_back({{"count", std::max(std::atoll(count.c_str()), 1LL)}, {"gpus", gpus}});
  }
  json::object out = {{"name", name}, {"parameters", parameters}};
  if (!groups.empty()) out["instance_group"] = groups;
  return out;
}

class Checker {
 public:
  Checker(const fs::path& repository, const fs::path& backend_dir)
      : repository_(repository), backend_dir_(backend_dir) {}

  RepositoryCheck run() {
    std::set<std::string> config_names = {""};
    for (const auto& name : folders_in(repository_)) {
      check_model(name);
      for (const auto& config : configs_of(name)) config_names.insert(config);
    }
    for (const auto& [name, model] : models_) {
      check_ensemble_text(name, models_, report_to(model.path));
    }
    for (const auto& config : config_names) ask_server(config);
    out_.problems.insert(out_.problems.end(), parameter_problems_.begin(),
                         parameter_problems_.end());
    std::stable_sort(out_.problems.begin(), out_.problems.end(), [](const auto& a, const auto& b) {
      return std::tie(a.file, a.line) < std::tie(b.file, b.line);
    });
    return std::move(out_);
  }

 private:
  Report report_to(const std::string& file) {
    return [this, file](int line, const std::string& field, const std::string& text) {
      out_.problems.push_back({file, line, field, text});
    };
  }

  // Names of the configurations that --model-config-name may choose.
  std::vector<std::string> configs_of(const std::string& model) const {
    std::vector<std::string> out;
    std::error_code error;
    const fs::path dir = repository_ / model / "configs";
    for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
      if (it->path().extension() == ".pbtxt") out.push_back(it->path().stem().string());
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  // Adds the faults found by the server, for models whose text checks found none: the text checks
  // have line numbers, the server has every rule.
  void ask_server(const std::string& config_name) {
    const auto refused = refused_configurations(repository_, config_name);
    if (!refused.ok()) {
      return report_to(repository_.string())(0, "", std::string(message(refused.status())));
    }
    for (const auto& [model, reason] : *refused) {
      const fs::path dir = repository_ / model;
      const fs::path path =
          config_name.empty() ? dir / "config.pbtxt" : dir / "configs" / (config_name + ".pbtxt");
      const auto is_here = [&](const Problem& problem) { return problem.file == path.string(); };
      std::error_code error;
      if (!fs::exists(path, error) ||
          std::any_of(out_.problems.begin(), out_.problems.end(), is_here)) {
        continue;
      }
      report_to(path.string())(0, "", reason);
    }
  }

  void check_model(const std::string& name) {
    ++out_.num_models;
    const fs::path dir = repository_ / name;
    check_versions(dir);
    if (auto model = check_config(name, dir / "config.pbtxt")) models_[name] = *std::move(model);
    for (const auto& config : configs_of(name)) {
      check_config(name, dir / "configs" / (config + ".pbtxt"));
    }
  }

  // nullopt, after a report, when it cannot be read.
  std::optional<TextModel> check_config(const std::string& name, const fs::path& path) {
    const fs::path dir = repository_ / name;
    const Report report = report_to(path.string());
    const auto text = read_file(path, kMaxConfigBytes);
    if (!text.ok()) {
      const bool is_missing = absl::IsNotFound(text.status());
      report(0, "", is_missing ? "there is no such file" : std::string(message(text.status())));
      return std::nullopt;
    }
    TextModel model{path.string(), read_text_config(*text, report)};
    const TextField& config = model.config;
    if (const auto* given = config.find("name"); given != nullptr && given->value != name) {
      report(given->line, "name",
             fmt::format("is '{}', expected '{}', the folder's name", given->value, name));
    }
    check_config_text(config, report);
    const std::string backend = check_backend(config, dir, report);
    const size_t num_before = parameter_problems_.size();
    const Report of_parameters = [&](int line, const std::string& field, const std::string& what) {
      parameter_problems_.push_back({path.string(), line, field, what});
    };
    check_parameters(config, backend, of_parameters);
    if (backend == "tensorrtllm" && parameter_problems_.size() == num_before)
      check_layout(name, config, of_parameters);
    return model;
  }

  // Adds what the model's parameters ask for, and reports what its load would refuse of it.
  void check_layout(const std::string& name, const TextField& config, const Report& report) {
    const backend::ModelSettings settings = backend::ModelSettings::of(settings_json(name, config));
    const auto model_dir = backend::model_path(settings);
    const auto executor_config = backend::read_executor_config(settings);
    for (const Status& status : {model_dir.status(), executor_config.status()})
      if (!status.ok()) return report(0, "", std::string(message(status)));
    const ProcessLayout layout = process_layout(*model_dir, *executor_config);
    if (!layout.text.empty()) out_.layouts.push_back(name + ": " + layout.text);
    if (!layout.fault.ok()) report(0, "", std::string(message(layout.fault)));
  }

  void check_versions(const fs::path& dir) {
    static const std::set<std::string> kOther = {"warmup", "initial_state", "configs", "lib"};
    bool has_version = false;
    for (const auto& folder : folders_in(dir)) {
      if (is_version(folder)) {
        has_version = true;
      } else if (!kOther.contains(folder) &&
                 folder.find_first_not_of("0123456789") == folder.npos) {
        report_to((dir / folder).string())(0, "", "a version's name must not begin with 0");
      }
    }
    if (!has_version) {
      report_to(dir.string())(0, "", "there is no version folder, such as 1 (it may be empty)");
    }
  }

  // The backend that runs the model; "" for ensembles and unknown backends.
  std::string check_backend(const TextField& config, const fs::path& dir, const Report& report) {
    const TextField* backend = config.find("backend");
    if (config.text("platform") == "ensemble") {
      if (backend != nullptr && !backend->value.empty()) {
        report(backend->line, "backend", "an ensemble has none");
      }
      return "";
    }
    if (backend == nullptr || backend->value.empty()) {
      if (config.text("platform").empty()) report(0, "backend", "is missing");
      return "";
    }
    if (backend->value.starts_with("${")) {
      report(backend->line, "backend",
             fmt::format("is the placeholder {}, expected a name such as tensorrtllm",
                         backend->value));
      return "tensorrtllm";
    }
    if (backend->value == "python") return check_script(dir, *backend, report);
    std::error_code error;
    const std::string library = fmt::format("libtriton_{}.so", backend->value);
    for (const auto& place : {backend_dir_ / backend->value, dir, dir / "1"}) {
      if (fs::exists(place / library, error)) return backend->value;
    }
    const auto folders = folders_in(backend_dir_);
    const std::set<std::string> names(folders.begin(), folders.end());
    report(backend->line, "backend",
           fmt::format("is '{}': there is no {}.{}", backend->value,
                       (backend_dir_ / backend->value / library).string(),
                       did_you_mean(backend->value, names)));
    return backend->value;
  }

  // The backend that runs a model.py: our replacement, or "python". Reports one that cannot run.
  std::string check_script(const fs::path& dir, const TextField& backend, const Report& report) {
    bool has_script = false;
    std::string what = "none that is replaced";
    std::error_code error;
    for (const auto& version : folders_in(dir)) {
      if (!is_version(version)) continue;
      const auto script = server::identify_script(dir / version);
      if (!script.backend.empty()) return script.backend;
      if (!script.missing.empty()) what = script.missing + ", which is not part of this server";
      has_script = has_script || fs::exists(dir / version / "model.py", error);
    }
    if (!has_script) {
      report(backend.line, "backend", "is 'python', and no version folder has a model.py");
    }
    const fs::path library = backend_dir_ / "python" / "libtriton_python.so";
    if (!fs::exists(library, error)) {
      report(
          backend.line, "backend",
          fmt::format("is 'python': model.py is {}, and there is no {}", what, library.string()));
    }
    return "python";
  }

  void check_parameters(const TextField& config, const std::string& backend, const Report& report) {
    const auto keys = backend::parameter_keys(backend);
    if (keys.empty()) return;
    std::set<std::string> set;
    for (const auto* entry : config.all("parameters")) {
      const std::string key = entry->text("key");
      const TextField* value = entry->find("value");
      const std::string text = value == nullptr ? "" : value->text("string_value");
      const std::string field = fmt::format("parameters '{}'", key);
      const auto* parameter = backend::find_parameter(backend, key);
      if (parameter == nullptr) {
        report(
            entry->line, field,
            fmt::format("backend {} has no such parameter.{}", backend, did_you_mean(key, keys)));
        continue;
      }
      if (const Status status = backend::check_parameter(*parameter, text); !status.ok()) {
        report(entry->line, field, std::string(message(status)));
      }
      if (backend::is_unset(text)) continue;
      set.insert(key);
      std::error_code error;
      if (parameter->kind == backend::ParameterKind::kFolder &&
          parameter->use == backend::ParameterUse::kActs && !fs::exists(text, error)) {
        report(entry->line, field, fmt::format("'{}' does not exist", text));
      }
    }
    const bool has_old_name = set.contains("engine_dir") || set.contains("model_dir");
    for (const auto& parameter : backend::parameters_of(backend)) {
      if (!parameter.is_mandatory || set.contains(parameter.key)) continue;
      if (std::string_view(parameter.key) == "gpt_model_path" && has_old_name) continue;
      report(0, fmt::format("parameters '{}'", parameter.key), "is mandatory and not set");
    }
  }

  fs::path repository_, backend_dir_;
  RepositoryCheck out_;
  // Faults of backends' parameters, which the server does not read.
  std::vector<Problem> parameter_problems_;
  TextModels models_;
};

}  // namespace

StatusOr<RepositoryCheck> check_repository(const fs::path& repository,
                                           const fs::path& backend_dir) {
  std::error_code error;
  if (!fs::exists(repository, error)) return not_found("{}: no such folder", repository.string());
  if (!fs::is_directory(repository, error)) {
    return invalid_argument("{}: not a folder", repository.string());
  }
  return Checker(repository, backend_dir).run();
}

std::string problem_text(const Problem& p) {
  std::string text = p.file;
  if (p.line > 0) text += fmt::format(":{}", p.line);
  if (!p.field.empty()) text += ": " + p.field;
  return text + ": " + p.text;
}

}  // namespace nereid::cli
