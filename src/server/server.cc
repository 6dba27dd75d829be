// Lifecycle of the server: load, answer questions, stop.
#include "server/server.h"

#include <algorithm>

#include "base/json.h"
#include "base/log.h"

namespace nereid::server {

StatusOr<std::unique_ptr<Server>> Server::create(ServerOptions options) {
  if (options.repositories.empty()) return invalid_argument("--model-repository must be specified");
  std::unique_ptr<Server> server(new Server(std::move(options)));
  RETURN_IF_ERROR(server->scan());
  server->load_all();
  server->log_table();
  if (const std::string failed = server->failures(); !failed.empty()) {
    const Status status = internal_error("failed to load all models: {}", failed);
    if (server->options_.exit_on_error) {
      if (Status s = server->stop(); !s.ok()) log_error("{}", message(s));
      return status;
    }
    log_error("{}", message(status));
  }
  return server;
}

namespace {

// A backend still holds requests of this model: its memory must outlive every use of it.
void keep_for_ever(std::shared_ptr<Model> model) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<Model>>;
  std::lock_guard lock(mutex);
  kept->push_back(std::move(model));
}

}  // namespace

Server::~Server() {
  if (Status s = stop(); !s.ok()) log_error("failed to stop server: {}", message(s));
}

Status Server::stop() {
  std::lock_guard lock(stop_mutex_);
  stopping_.store(true);
  if (stopped_) return ok();
  stopped_ = true;
  log_info("Waiting for in-flight requests to complete.");
  const Time deadline = now() + std::chrono::seconds(options_.exit_timeout_s);
  // Models that send requests to others go first, ensembles before what they are made of.
  std::stable_partition(load_order_.begin(), load_order_.end(),
                        [](const auto& model) { return !model->calls_models(); });
  int num_left = 0;
  for (auto it = load_order_.rbegin(); it != load_order_.rend(); ++it) {
    if ((*it)->stop(deadline)) continue;
    ++num_left;
    keep_for_ever(*it);
  }
  if (num_left == 0) return ok();
  for (auto& [_, backend] : backends_) (void)backend.release();
  return internal_error("Exit timeout expired. Exiting immediately.");
}

Status Server::check_running() const {
  return stopping_.load() ? unavailable("Server exiting") : ok();
}

StatusOr<std::shared_ptr<Model>> Server::find(const std::string& name, int64_t version) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return not_found("Request for unknown model: '{}' is not found", name);
  std::shared_lock lock(versions_mutex_);
  const auto& versions = it->second.versions;
  if (version > 0) {
    const auto v = versions.find(version);
    if (v == versions.end()) {
      return not_found("Request for unknown model: '{}' version {} is not found", name, version);
    }
    if (v->second.model == nullptr) {
      return unavailable("Request for unknown model: '{}' version {} is not at ready state", name,
                         version);
    }
    return v->second.model;
  }
  for (auto v = versions.rbegin(); v != versions.rend(); ++v) {
    if (v->second.model != nullptr) return v->second.model;
  }
  return not_found("Request for unknown model: '{}' has no available versions", name);
}

bool Server::is_ready() const {
  if (stopping_.load()) return false;
  if (!options_.strict_readiness) return true;
  if (!failures().empty()) return false;
  return std::all_of(load_order_.begin(), load_order_.end(), [](const auto& model) {
    const auto* backend_model = dynamic_cast<const BackendModel*>(model.get());
    return backend_model == nullptr || backend_model->ready();
  });
}

std::string Server::metadata() const {
  return json::serialize(json::object{
      {"name", options_.id},
      {"version", NEREID_VERSION},
      {"extensions", json::array{"model_repository", "model_configuration", "parameters"}}});
}

namespace {

json::array tensors_json(const std::vector<TensorSpec>& specs, const ModelConfig& config) {
  json::array out;
  for (const auto& spec : specs) {
    json::array shape;
    if (config.max_batch_size > 0 && !spec.is_shape_tensor) shape.push_back(-1);
    for (int64_t d : spec.dims) shape.push_back(d);
    out.push_back(json::object{{"name", spec.name},
                               {"datatype", TRITONSERVER_DataTypeString(spec.datatype)},
                               {"shape", std::move(shape)}});
  }
  return out;
}

}  // namespace

StatusOr<std::string> Server::model_metadata(const std::string& name, int64_t version) const {
  ASSIGN_OR_RETURN(const auto model, find(name, version));
  json::array versions;
  if (version > 0) {
    versions.push_back(json::string(std::to_string(version)));
  } else {
    std::shared_lock lock(versions_mutex_);
    for (const auto& [number, v] : entries_.at(name).versions) {
      if (v.model != nullptr) versions.push_back(json::string(std::to_string(number)));
    }
  }
  const ModelConfig& config = model->config();
  return json::serialize(
      json::object{{"name", name},
                   {"versions", std::move(versions)},
                   {"platform", config.platform.empty() ? config.backend : config.platform},
                   {"inputs", tensors_json(config.inputs, config)},
                   {"outputs", tensors_json(config.outputs, config)}});
}

std::string Server::index(bool ready_only) const {
  json::array out;
  std::shared_lock lock(versions_mutex_);
  for (const auto& [name, entry] : entries_) {
    if (!entry.config.ok() && !ready_only) out.push_back(json::object{{"name", name}});
    for (const auto& [number, version] : entry.versions) {
      const bool ready = version.model != nullptr;
      if (ready_only && !ready) continue;
      json::object row{{"name", name},
                       {"version", std::to_string(number)},
                       {"state", ready ? "READY" : "UNAVAILABLE"}};
      if (!version.reason.empty()) row["reason"] = version.reason;
      out.push_back(std::move(row));
    }
  }
  return json::serialize(out);
}

std::string Server::failures() const {
  std::string out;
  std::shared_lock lock(versions_mutex_);
  const auto add = [&](const std::string& name, std::string_view why) {
    out += fmt::format("{}{}: {}", out.empty() ? "" : "; ", name, why);
  };
  for (const auto& [name, entry] : entries_) {
    if (!entry.config.ok()) {
      add(name, message(entry.config.status()));
    } else if (entry.versions.empty()) {
      add(name, "Not loaded: No model version was found");
    }
    for (const auto& [number, version] : entry.versions) {
      if (version.model == nullptr) add(name, version.reason);
    }
  }
  return out;
}

void Server::log_table() const {
  size_t width = 5;
  for (const auto& [name, _] : entries_) width = std::max(width, name.size());
  std::string table = fmt::format("\n| {:{}} | Version | Status\n", "Model", width);
  const auto row = [&](const std::string& name, const std::string& version, std::string_view what) {
    table += fmt::format("| {:{}} | {:7} | {}\n", name, width, version, what);
  };
  for (const auto& [name, entry] : entries_) {
    if (!entry.config.ok()) row(name, "-", message(entry.config.status()));
    if (entry.config.ok() && entry.versions.empty()) {
      row(name, "-", "Not loaded: No model version was found");
    }
    for (const auto& [number, version] : entry.versions) {
      row(name, std::to_string(number),
          version.model != nullptr ? "READY" : "UNAVAILABLE: " + version.reason);
    }
  }
  log_info("{}", table);
}

}  // namespace nereid::server
