// Folders, versions, fingerprints and load overrides; see repository.h.
#include "server/repository/repository.h"

#include <algorithm>

#include "base/file.h"
#include "base/gpus.h"
#include "base/hash.h"
#include "base/log.h"

namespace nereid::server {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxConfigBytes = 4 << 20;
// Files of one model; changes of further ones are not detected.
constexpr size_t kMaxFiles = 100000;

// The version number of a folder name: decimal, no leading zero. 0: none.
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
  if (error) {
    return internal_error("failed to read directory {}: {}", dir.string(), error.message());
  }
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
  if (policy.is_specific) {
    std::erase_if(found, [&](int64_t v) {
      return std::find(policy.specific.begin(), policy.specific.end(), v) == policy.specific.end();
    });
  } else if (policy.latest > 0 && found.size() > policy.latest) {
    found.erase(found.begin(), found.end() - policy.latest);
  }
  return found;
}

// Whether a file, by its path in the model's folder, belongs to the model's contents: neither
// configuration nor Python's cache.
bool is_content(const fs::path& path) {
  return path != "config.pbtxt" && *path.begin() != "configs" &&
         std::find(path.begin(), path.end(), "__pycache__") == path.end();
}

// Fills in both fingerprints: sums of hashes of path, size and time of every file.
void read_fingerprints(ModelFiles& files) {
  size_t num_files = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(files.dir, error), end; !error && it != end;
       it.increment(error)) {
    if (++num_files > kMaxFiles) break;
    std::error_code ignored;
    const auto time = it->last_write_time(ignored).time_since_epoch().count();
    const auto size = it->is_regular_file(ignored) ? it->file_size(ignored) : 0;
    // A sum, since the order of a folder's entries may change.
    const uint64_t hash = hash64(fmt::format("{}|{}|{}", it->path().string(), size, time));
    files.fingerprint += hash;
    if (!it->is_directory(ignored) && is_content(it->path().lexically_relative(files.dir)))
      files.contents += hash;
  }
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name.find_first_of("/\\") == std::string::npos && name != "." &&
         name.find("..") == std::string::npos && name.find('\0') == std::string::npos;
}

// Writes the files of an override to a temporary folder.
StatusOr<std::shared_ptr<ScratchDir>> write_files(const ModelOverride& changes) {
  ASSIGN_OR_RETURN(ScratchDir made, ScratchDir::create());
  auto scratch = std::make_shared<ScratchDir>(std::move(made));
  for (const auto& [name, content] : changes.files) {
    const fs::path path(name);
    const bool escapes = path.is_absolute() ||
                         std::any_of(path.begin(), path.end(), [](auto& p) { return p == ".."; });
    if (escapes || path.filename().empty() || name.find('\0') != std::string::npos) {
      return invalid_argument("file:{} is not a path below the model's folder", name);
    }
    std::error_code error;
    fs::create_directories((scratch->path() / path).parent_path(), error);
    if (error) return internal_error("file:{}: {}", name, error.message());
    RETURN_IF_ERROR(write_file_atomic(scratch->path() / path, content));
  }
  return scratch;
}

UsableGpus usable_gpus(double min_capability) {
  UsableGpus out;
  out.min_capability = min_capability;
  constexpr double kRounding = 1e-6;
  const std::vector<Gpu> gpus = visible_gpus();
  for (size_t i = 0; i < gpus.size(); ++i)
    if (gpus[i].capability + kRounding >= min_capability) out.ids.insert(static_cast<int32_t>(i));
  return out;
}

}  // namespace

Repositories::Repositories(const ServerOptions& options)
    : roots_(options.repositories.begin(), options.repositories.end()),
      has_namespaces_(options.has_namespaces),
      strict_config_(options.strict_model_config),
      config_name_(options.model_config_name),
      gpus_(usable_gpus(options.min_compute_capability)) {}

Status Repositories::check_roots() const {
  std::lock_guard lock(mutex_);
  for (const fs::path root : roots_) {
    std::error_code error;
    if (!fs::exists(root, error)) return internal_error("failed to stat file {}", root.string());
    if (!fs::is_directory(root, error)) {
      return internal_error("repository path is not a valid directory: {}", root.string());
    }
  }
  return ok();
}

StatusOr<std::set<ModelId>> Repositories::ids(std::set<ModelId>* duplicates) const {
  std::lock_guard lock(mutex_);
  std::set<ModelId> out;
  const auto add = [&](const std::string& root, const std::string& name) {
    const ModelId id{has_namespaces_ ? root : "", name};
    if (!out.insert(id).second) duplicates->insert(id);
  };
  for (const auto& root : roots_) {
    ASSIGN_OR_RETURN(const auto found, folders_in(root));
    for (const auto& folder : found) {
      if (!folder.starts_with('.') && !is_mapped(root, folder)) add(root, folder);
    }
  }
  for (const auto& [name, place] : mapped_) {
    std::error_code error;
    if (fs::is_directory(fs::path(place.root) / place.folder, error)) add(place.root, name);
  }
  for (const auto& id : *duplicates) out.erase(id);
  return out;
}

std::vector<ModelId> Repositories::named(const std::string& name) const {
  if (!has_namespaces_ || !is_plain_name(name)) return {{"", name}};
  std::lock_guard lock(mutex_);
  if (const auto it = mapped_.find(name); it != mapped_.end()) return {{it->second.root, name}};
  std::vector<ModelId> out;
  for (const auto& root : roots_) {
    std::error_code error;
    if (!is_mapped(root, name) && fs::is_directory(fs::path(root) / name, error)) {
      out.push_back({root, name});
    }
  }
  if (out.empty()) out.push_back({"", name});
  return out;
}

bool Repositories::is_mapped(const std::string& root, const std::string& folder) const {
  return std::any_of(mapped_.begin(), mapped_.end(), [&](const auto& entry) {
    return entry.second.root == root && entry.second.folder == folder;
  });
}

StatusOr<fs::path> Repositories::find(const ModelId& id) const {
  std::lock_guard lock(mutex_);
  fs::path found;
  std::error_code error;
  if (const auto it = mapped_.find(id.name); it != mapped_.end()) {
    const fs::path dir = fs::path(it->second.root) / it->second.folder;
    if (fs::is_directory(dir, error)) return dir;
    return not_found("model not found in any model repository.");
  }
  for (const auto& root : roots_) {
    const fs::path dir = fs::path(root) / id.name;
    if (has_namespaces_ && root != id.space) continue;
    if (is_mapped(root, id.name) || !fs::is_directory(dir, error)) continue;
    if (!found.empty()) {
      return invalid_argument("model '{}' is in more than one repository: {} and {}", id.name,
                              found.string(), dir.string());
    }
    found = dir;
  }
  if (found.empty()) return not_found("model not found in any model repository.");
  return found;
}

StatusOr<ModelFiles> Repositories::find_files(const ModelId& id,
                                              const ModelOverride& changes) const {
  if (!is_plain_name(id.name)) {
    return invalid_argument("a model's name has no '/', no '\\' and no '..'");
  }
  ModelFiles out;
  out.overridden = !changes.empty();
  if (!changes.files.empty()) {
    if (!changes.config) {
      return invalid_argument("files without parameter 'config', which they require");
    }
    ASSIGN_OR_RETURN(out.scratch, write_files(changes));
    out.dir = out.scratch->path();
  } else {
    ASSIGN_OR_RETURN(out.dir, find(id));
  }
  read_fingerprints(out);
  return out;
}

Status Repositories::resolve(const ModelId& id, const ModelOverride& changes, RepoAgents& agents,
                             ModelFiles& files) const {
  ASSIGN_OR_RETURN(ConfigSource source, source_of(id.name, files.dir, changes));
  ASSIGN_OR_RETURN(const RawConfig raw, parse_raw_config(source));
  if (!raw.agents.empty()) {
    const auto config_in = [&](const fs::path& dir) -> StatusOr<RawConfig> {
      ASSIGN_OR_RETURN(const ConfigSource there, source_of(id.name, dir, {}));
      return parse_raw_config(there);
    };
    files.agents = std::make_shared<AgentChain>();
    RETURN_IF_ERROR(files.agents->load(agents, raw, files.dir, config_in));
    files.dir = files.agents->location();
    ASSIGN_OR_RETURN(source, source_of(id.name, files.dir, changes));
  }
  ASSIGN_OR_RETURN(files.config, parse_model_config(source));
  // No backend completes the tensors.
  if (strict_config_) RETURN_IF_ERROR(files.config.tensor_problem);
  files.config.space = id.space;
  ASSIGN_OR_RETURN(files.versions, versions_in(files.dir, files.config.versions));
  return ok();
}

StatusOr<ModelConfig> Repositories::read_config(const ModelId& id,
                                                const ModelOverride& changes) const {
  if (!is_plain_name(id.name)) return invalid_argument("not a model's name: '{}'", id.name);
  fs::path dir;
  if (!changes.config) {
    ASSIGN_OR_RETURN(dir, find(id));
  }
  ASSIGN_OR_RETURN(const ConfigSource source, source_of(id.name, dir, changes));
  ASSIGN_OR_RETURN(ModelConfig config, parse_model_config(source));
  config.space = id.space;
  return config;
}

StatusOr<ConfigSource> Repositories::source_of(const std::string& name, const fs::path& dir,
                                               const ModelOverride& changes) const {
  ConfigSource source;
  source.model = name;
  {
    std::lock_guard lock(mutex_);
    source.is_mapped = mapped_.contains(name);
  }
  source.gpus = gpus_;
  source.dir = dir;
  if (changes.config) {
    source.is_json = true;
    source.text = *changes.config;
    return source;
  }
  std::error_code error;
  fs::path path = dir / "configs" / (config_name_ + ".pbtxt");
  if (config_name_.empty() || !fs::exists(path, error)) path = dir / "config.pbtxt";
  if (strict_config_ || fs::exists(path, error)) {
    StatusOr<std::string> config = read_file(path, kMaxConfigBytes);
    if (!config.ok()) {
      return Status(config.status().code(),
                    fmt::format("failed to open text file for read {}", message(config.status())));
    }
    source.text = *std::move(config);
  } else {
    source.is_given = false;
  }
  source.path = path.string();
  return source;
}

Status Repositories::add_root(const std::string& root, const Mapping& mapping) {
  std::error_code error;
  if (!fs::is_directory(root, error)) {
    return invalid_argument("failed to register '{}', repository not found", root);
  }
  for (const auto& [model, folder] : mapping) {
    if (!is_plain_name(model) || !is_plain_name(folder)) {
      return invalid_argument(
          "failed to register '{}': '{}' for folder '{}': names have no '/', no '\\' and no '..'",
          root, model, folder);
    }
  }
  std::lock_guard lock(mutex_);
  if (roots_.contains(root)) {
    return already_exists("model repository '{}' has already been registered", root);
  }
  for (const auto& [model, folder] : mapping) {
    if (!mapped_.contains(model)) continue;
    return already_exists("failed to register '{}', there is a conflicting mapping for '{}'", root,
                          model);
  }
  roots_.insert(root);
  for (const auto& [model, folder] : mapping) mapped_[model] = {root, folder};
  return ok();
}

Status Repositories::remove_root(const std::string& root) {
  std::lock_guard lock(mutex_);
  if (roots_.erase(root) == 0) {
    return invalid_argument("failed to unregister '{}', repository not found", root);
  }
  std::erase_if(mapped_, [&](const auto& entry) { return entry.second.root == root; });
  return ok();
}

}  // namespace nereid::server
