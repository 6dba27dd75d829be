// Search for a model's backend and its library: a part of ModelManager's loading.
#include "base/log.h"
#include "server/repository/model_manager.h"
#include "server/scripts/known_scripts.h"

namespace nereid::server {
namespace {

namespace fs = std::filesystem;

// False with --backend-config=python,native-scripts=false.
bool runs_known_scripts(const ServerOptions& options) {
  const auto python = options.backend_settings.find("python");
  if (python == options.backend_settings.end()) return true;
  const auto setting = python->second.find("native-scripts");
  return setting == python->second.end() || setting->second != "false";
}

// The folder that contains the backends' folders; a backend's own setting has precedence.
std::string backend_directory(const ServerOptions& options, const std::string& backend) {
  std::string out = options.backend_dir;
  for (const std::string& section : {std::string(), backend}) {
    const auto it = options.backend_settings.find(section);
    if (it == options.backend_settings.end()) continue;
    const auto setting = it->second.find("backend-directory");
    if (setting != it->second.end()) out = setting->second;
  }
  return out;
}

}  // namespace

StatusOr<Backend*> ModelManager::backend_for(const ModelConfig& config, const fs::path& dir,
                                             int64_t version) {
  std::string name = config.backend;
  KnownScript script;
  if (name == "python" && runs_known_scripts(options_)) {
    script = identify_script(dir / std::to_string(version));
    if (!script.backend.empty()) {
      name = script.backend;
      log_info(
          "model '{}': its model.py is a script of the TensorRT-LLM backend that backend '{}' "
          "replaces: served natively, without Python",
          config.name, name);
    }
  }
  const fs::path home = fs::path(backend_directory(options_, name)) / name;
  // A model.py as runtime is handled by the python backend itself.
  const bool names_library = !config.runtime.empty() && config.runtime != "model.py";
  const std::string file = names_library ? config.runtime : fmt::format("libtriton_{}.so", name);
  const fs::path candidates[] = {dir / std::to_string(version) / file, dir / file, home / file};
  std::error_code error;
  for (const auto& path : candidates) {
    if (!fs::exists(path, error)) continue;
    const fs::path real = fs::canonical(path, error);
    // Backends compare the name with the setting.
    return opened(name, real, real, path.parent_path());
  }
  if (names_library) {
    return invalid_argument(
        "unable to find backend library '{}' for model '{}', searched: '{}' '{}' '{}'", file,
        config.name, candidates[0].parent_path().string(), dir.string(), home.string());
  }
  // A backend written in Python: the python backend's library under another name, which loads
  // model.py from the backend's folder.
  const fs::path script_path = home / "model.py";
  if (name != "python" && fs::exists(script_path, error)) {
    const fs::path library =
        fs::path(backend_directory(options_, "python")) / "python" / "libtriton_python.so";
    if (fs::exists(library, error)) return opened(name, library, script_path, home);
    return invalid_argument("backend '{}' is {}, which needs the python backend: there is no {}",
                            name, script_path.string(), library.string());
  }
  log_error("backend '{}': no {}", name, candidates[2].string());
  if (name == "python" && !script.resembles.empty()) {
    return invalid_argument(
        "unable to find backend library for backend 'python': model.py of '{}' is a changed or "
        "newer version of the TensorRT-LLM backend's script and needs {}; to use the built-in "
        "replacement instead, set backend: \"{}\" in config.pbtxt",
        config.name, candidates[2].string(), script.resembles);
  }
  if (name == "python" && !script.missing.empty()) {
    return unsupported(
        "model.py of '{}' is the TensorRT-LLM backend's {}, which is not part of this server, and "
        "there is no Python backend to run it (docs/migrate-from-triton.md lists what is missing)",
        config.name, script.missing);
  }
  return invalid_argument(
      "unable to find backend library for backend '{}', try specifying runtime on the model "
      "configuration.",
      name);
}

StatusOr<Backend*> ModelManager::opened(const std::string& name, const fs::path& library,
                                        const fs::path& shown, const fs::path& home) {
  std::lock_guard lock(backends_mutex_);
  auto& slot = backends_[shown.string()];
  if (slot == nullptr) {
    auto backend = Backend::open(name, library, home, options_);
    if (!backend.ok()) {
      backends_.erase(shown.string());
      return backend.status();
    }
    slot = *std::move(backend);
  }
  return slot.get();
}

}  // namespace nereid::server
