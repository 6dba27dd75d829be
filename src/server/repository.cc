// Reading model repositories and loading what they hold: the part of Server that runs inside
// create().
#include <algorithm>
#include <set>

#include "base/log.h"
#include "server/ensemble.h"
#include "server/error.h"
#include "server/server.h"

namespace nereid::server {
namespace {

namespace fs = std::filesystem;

// A folder name that is a version: decimal, no leading zero. 0 otherwise.
int64_t version_of(const std::string& name) {
  if (name.empty() || name.size() > 18 || name[0] == '0') return 0;
  if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) return 0;
  return std::stoll(name);
}

StatusOr<std::vector<std::string>> folders_in(const fs::path& dir) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored)) names.push_back(it->path().filename().string());
  }
  if (error)
    return internal_error("failed to read directory {}: {}", dir.string(), error.message());
  std::sort(names.begin(), names.end());
  return names;
}

StatusOr<std::vector<int64_t>> versions_in(const fs::path& dir, const VersionPolicy& policy) {
  ASSIGN_OR_RETURN(const auto names, folders_in(dir));
  std::vector<int64_t> found;
  for (const auto& name : names) {
    const int64_t version = version_of(name);
    if (version > 0) {
      found.push_back(version);
    } else if (name != "warmup" && name != "initial_state" && name != "configs") {
      log_warn("ignore version directory '{}' which fails to convert to integral number",
               (dir / name).string());
    }
  }
  std::sort(found.begin(), found.end());
  if (!policy.specific.empty()) {
    std::erase_if(found, [&](int64_t v) {
      return std::find(policy.specific.begin(), policy.specific.end(), v) == policy.specific.end();
    });
  } else if (policy.latest > 0 && found.size() > policy.latest) {
    found.erase(found.begin(), found.end() - policy.latest);
  }
  return found;
}

}  // namespace

Status Server::scan() {
  const std::set<std::string> roots(options_.repositories.begin(), options_.repositories.end());
  for (const auto& root : roots) RETURN_IF_ERROR(scan_repository(root));
  return ok();
}

Status Server::scan_repository(const fs::path& root) {
  std::error_code error;
  if (!fs::exists(root, error)) return internal_error("failed to stat file {}", root.string());
  if (!fs::is_directory(root, error)) {
    return internal_error("repository path is not a valid directory: {}", root.string());
  }
  ASSIGN_OR_RETURN(const auto names, folders_in(root));
  for (const auto& name : names) {
    if (name.starts_with('.')) continue;
    const auto [it, is_new] = entries_.try_emplace(name);
    Entry& entry = it->second;
    if (!is_new) {
      entry.versions.clear();
      entry.config = invalid_argument("model '{}' is in more than one repository: {} and {}", name,
                                      entry.dir.string(), (root / name).string());
      continue;
    }
    entry.dir = root / name;
    entry.config = read_model_config(entry.dir);
    if (!entry.config.ok()) continue;
    auto versions = versions_in(entry.dir, entry.config->versions);
    if (!versions.ok()) {
      entry.config = versions.status();
      continue;
    }
    for (int64_t version : *versions) entry.versions[version].reason = "not loaded yet";
  }
  return ok();
}

void Server::load_all() {
  for (auto& [name, entry] : entries_) {
    if (!entry.config.ok() || entry.config->is_ensemble()) continue;
    for (auto& [number, _] : entry.versions) load(entry, number);
  }
  // Ensembles of ensembles: again while one more could be loaded.
  for (size_t before = load_order_.size() + 1; before != load_order_.size();) {
    before = load_order_.size();
    for (auto& [name, entry] : entries_) {
      if (!entry.config.ok() || !entry.config->is_ensemble()) continue;
      for (auto& [number, version] : entry.versions) {
        if (version.model == nullptr) load(entry, number);
      }
    }
  }
}

void Server::load(Entry& entry, int64_t version) {
  const ModelConfig& config = *entry.config;
  const Time start = now();
  log_info("loading: {}:{}", config.name, version);
  auto stats = ModelStatistics::create(options_.metrics, config.name, version, config.metric_tags);
  Status status = stats.status();
  if (status.ok()) {
    status = config.is_ensemble() ? load_ensemble(entry, version, *std::move(stats))
                                  : load_backend_model(entry, version, *std::move(stats));
  }
  std::unique_lock lock(versions_mutex_);
  Version& slot = entry.versions[version];
  if (!status.ok()) {
    slot.reason = fmt::format("{}: {}", code_string(to_code(status.code())), message(status));
    log_error("failed to load '{}' version {}: {}", config.name, version, slot.reason);
    return;
  }
  slot.reason.clear();
  slot.model = load_order_.back();
  slot.model->statistics().loaded(seconds(now() - start));
  log_info("successfully loaded '{}'", config.name);
}

Status Server::load_backend_model(Entry& entry, int64_t version,
                                  std::unique_ptr<ModelStatistics> stats) {
  ASSIGN_OR_RETURN(Backend * backend, backend_for(*entry.config, entry.dir, version));
  auto model =
      std::make_shared<BackendModel>(this, *entry.config, version, entry.dir, std::move(stats));
  RETURN_IF_ERROR(model->load(backend, options_));
  load_order_.push_back(std::move(model));
  return ok();
}

Status Server::load_ensemble(Entry& entry, int64_t version,
                             std::unique_ptr<ModelStatistics> stats) {
  const ModelConfig& config = *entry.config;
  std::vector<std::shared_ptr<Model>> models;
  for (const auto& step : config.steps) {
    const auto it = entries_.find(step.model);
    if (it == entries_.end()) {
      return invalid_argument("ensemble {} contains models that are not available or ambiguous: {}",
                              config.name, step.model);
    }
    if (!it->second.config.ok()) {
      return invalid_argument(
          "ensemble '{}' depends on '{}' which is not valid. Model '{}' failed "
          "with error: {}",
          config.name, step.model, step.model, message(it->second.config.status()));
    }
    auto model = find(step.model, step.version);
    if (!model.ok() && step.version > 0) {
      return invalid_argument(
          "ensemble '{}' depends on '{}' whose required version {} is not loaded.", config.name,
          step.model, step.version);
    }
    if (!model.ok()) {
      const auto& versions = it->second.versions;
      return invalid_argument(
          "ensemble '{}' depends on '{}' which has no loaded version. Model '{}' loading failed "
          "with error: {}",
          config.name, step.model, step.model,
          versions.empty() ? "no version was found" : versions.rbegin()->second.reason);
    }
    models.push_back(*std::move(model));
  }
  auto ensemble =
      std::make_shared<EnsembleModel>(this, config, version, entry.dir, std::move(stats));
  RETURN_IF_ERROR(ensemble->load(std::move(models)));
  load_order_.push_back(std::move(ensemble));
  return ok();
}

StatusOr<Backend*> Server::backend_for(const ModelConfig& config, const fs::path& dir,
                                       int64_t version) {
  std::string backend_dir = options_.backend_dir;
  for (const std::string& section : {std::string(), config.backend}) {
    const auto it = options_.backend_settings.find(section);
    if (it == options_.backend_settings.end()) continue;
    const auto setting = it->second.find("backend-directory");
    if (setting != it->second.end()) backend_dir = setting->second;
  }
  const std::string file =
      config.runtime.empty() ? fmt::format("libtriton_{}.so", config.backend) : config.runtime;
  const fs::path candidates[] = {dir / std::to_string(version) / file, dir / file,
                                 fs::path(backend_dir) / config.backend / file};
  for (const auto& path : candidates) {
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    const fs::path real = fs::canonical(path, error);
    auto& slot = backends_[real.string()];
    if (slot == nullptr) {
      auto opened = Backend::open(config.backend, real, options_);
      if (!opened.ok()) {
        backends_.erase(real.string());
        return opened.status();
      }
      slot = *std::move(opened);
    }
    return slot.get();
  }
  return invalid_argument(
      "unable to find backend library for backend '{}', try specifying runtime "
      "on the model configuration. Looked for {}",
      config.backend, candidates[2].string());
}

}  // namespace nereid::server
