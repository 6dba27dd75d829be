// Life cycle of the server: load, answer queries, stop.
#include "server/server.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/countdown.h"
#include "base/gpus.h"
#include "base/json.h"
#include "base/log.h"
#include "server/log_switches.h"
#include "server/memory/pinned_pool.h"
#include "server/metrics/metrics.h"
#include "server/metrics/model_metrics.h"
#include "server/start_tables.h"

namespace nereid::server {
namespace {

constexpr std::array kExtensions = {"classification",
                                    "sequence",
                                    "model_repository",
                                    "model_repository(unload_dependents)",
                                    "schedule_policy",
                                    "model_configuration",
                                    "system_shared_memory",
                                    "binary_tensor_data",
                                    "parameters",
                                    "statistics",
                                    "trace",
                                    "logging"};

}  // namespace

StatusOr<std::unique_ptr<Server>> Server::create(ServerOptions options) {
  if (options.repositories.empty()) return invalid_argument("--model-repository must be specified");
  std::unique_ptr<ResponseCache> cache;
  if (!options.cache_name.empty()) {
    ASSIGN_OR_RETURN(
        cache, ResponseCache::open(options.cache_name, options.cache_config, options.cache_dir));
  }
  std::unique_ptr<Server> server(new Server(std::move(options)));
  server->cache_ = std::move(cache);
  const MetricsConfig& metrics = server->options_.metrics;
  const std::vector<Gpu> gpus =
      metrics.enabled && metrics.gpu ? visible_gpus() : std::vector<Gpu>();
  server->system_metrics_ = std::make_unique<SystemMetrics>(metrics, server->cache_.get(), gpus);
  PinnedPool::get().resize(server->options_.pinned_pool_bytes);
  if (server->options_.limit_rates) {
    server->limiter_ = std::make_unique<RateLimiter>(server->options_.rate_resources);
  }
  server->models_ = std::make_unique<ModelManager>(server.get(), server->options_);
  if (Status status = server->models_->start(); !status.ok()) {
    if (server->options_.exit_on_error) return status;
    log_error("{}", message(status));
    server->has_failed_ = true;
  }
  if (!is_log_terse()) server->log_start();
  if (const std::string failed = server->models_->failures(); !failed.empty()) {
    const Status status = internal_error("failed to load all models: {}", failed);
    if (server->options_.exit_on_error) {
      if (Status s = server->stop(); !s.ok()) log_error("{}", message(s));
      return status;
    }
    log_error("{}", message(status));
  }
  return server;
}

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
  const Countdown countdown(deadline, [this](int64_t seconds) {
    const auto busy = models_->busy_models();
    log_info("Timeout {}: Found {} model versions that have in-flight inferences", seconds,
             busy.size());
    for (const auto& model : busy) {
      log_info("Model '{}' (version {}) has {} in-flight inferences", model->config().name,
               model->version(), model->num_running());
    }
  });
  if (models_->stop(deadline)) return ok();
  models_->abandon_backends();
  return internal_error("Exit timeout expired. Exiting immediately.");
}

std::string Server::metrics_text() const {
  std::vector<prometheus::MetricFamily> page;
  collect_model_metrics(page);
  system_metrics_->collect(page);
  collect_custom_metrics(page);
  return prometheus::TextSerializer().Serialize(page);
}

Status Server::check_not_exiting() const {
  return stopping_.load() ? unavailable("Server exiting") : ok();
}

Status Server::check_running() const {
  if (has_failed_) return unavailable("Server not ready");
  return check_not_exiting();
}

bool Server::is_ready() const {
  return is_live() && (!options_.strict_readiness || models_->all_ready());
}

std::string Server::metadata() const {
  const json::array extensions(kExtensions.begin(), kExtensions.end());
  return json::serialize(
      json::object{{"name", options_.id}, {"version", NEREID_VERSION}, {"extensions", extensions}});
}

StatusOr<std::string> Server::model_metadata(const std::string& name, int64_t version) const {
  ASSIGN_OR_RETURN(const auto model, find(name, version));
  const Model::MetadataText& parts = model->metadata_text();
  std::string text;
  text.reserve(parts.before_versions.size() + parts.after_versions.size() + 64);
  text += parts.before_versions;
  auto add = [&, is_first = true](int64_t v) mutable {
    text += std::exchange(is_first, false) ? "\"" : ",\"";
    text += fmt::format_int(v).c_str();
    text += '"';
  };
  if (version > 0) {
    add(version);
  } else {
    for (const auto& ready : models_->ready_versions(name)) add(ready->version());
  }
  text += parts.after_versions;
  return text;
}

StatusOr<std::string> Server::statistics(const std::string& name, int64_t version) const {
  auto models = name.empty() ? models_->ready_models() : models_->ready_versions(name);
  if (!name.empty() && models.empty()) {
    return invalid_argument("requested model '{}' is not available", name);
  }
  if (version >= 0) std::erase_if(models, [&](auto& m) { return m->version() != version; });
  if (!name.empty() && models.empty()) {
    return invalid_argument("requested model version is not available for model '{}'", name);
  }
  json::array list;
  for (const auto& model : models) {
    json::object row{{"name", model->config().name}, {"version", std::to_string(model->version())}};
    model->statistics().append_json(row);
    list.push_back(std::move(row));
  }
  return json::serialize(json::object{{"model_stats", std::move(list)}});
}

std::string Server::index(bool ready_only) const {
  json::array out;
  for (const auto& model : models_->index(ready_only)) {
    json::object row{{"name", model.name}};
    if (model.version > 0) {
      row["version"] = std::to_string(model.version);
    }
    if (model.version > 0 || !model.reason.empty()) row["state"] = state_name(model.state);
    if (!model.reason.empty()) row["reason"] = model.reason;
    out.push_back(std::move(row));
  }
  return json::serialize(out);
}

void Server::log_start() const {
  if (options_.metrics.enabled && options_.metrics.cpu) log_info("Collecting CPU metrics");
  log_loaded(*models_);
  log_options(options_, models_->gpus(), NEREID_VERSION, {kExtensions.begin(), kExtensions.end()});
}

}  // namespace nereid::server
