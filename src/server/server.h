// The server core: a set of loaded models, queries about them, requests to them, and a stop.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "server/batching/rate_limiter.h"
#include "server/cache/cache.h"
#include "server/metrics/system_metrics.h"
#include "server/options.h"
#include "server/repository/model_manager.h"

namespace nereid::server {

class Server {
 public:
  // Loads the start-up models. Internal, naming each failed model and its error, if
  // exit_on_error is set.
  static StatusOr<std::unique_ptr<Server>> create(ServerOptions options);
  ~Server();  // stops

  // Waits for running requests and unloads, within the exit timeout. Internal: the
  // timeout has passed.
  Status stop();

  ModelManager& models() { return *models_; }
  const ModelManager& models() const { return *models_; }
  StatusOr<std::shared_ptr<Model>> find(const std::string& name, int64_t version) const {
    return models_->find(name, version);
  }

  RateLimiter* limiter() { return limiter_.get(); }  // null: off
  ResponseCache* cache() { return cache_.get(); }    // null: off

  // False when the repositories could not be read, which without exit_on_error is no
  // error of create().
  bool is_live() const { return !stopping_.load() && !has_failed_; }
  Status check_not_exiting() const;  // Unavailable while the server stops
  Status check_running() const;      // check_not_exiting(), and an error when it is not live
  bool is_ready() const;

  // JSON documents of the protocol.
  std::string metadata() const;
  StatusOr<std::string> model_metadata(const std::string& name, int64_t version) const;
  std::string index(bool ready_only) const;
  // `name` "": every model. InvalidArgument when it is not ready.
  StatusOr<std::string> statistics(const std::string& name, int64_t version) const;

  // The Prometheus page: models, system and custom metrics.
  std::string metrics_text() const;

  void set_exit_timeout(uint32_t seconds) { options_.exit_timeout_s = seconds; }

 private:
  explicit Server(ServerOptions options) : options_(std::move(options)) {}

  void log_start() const;

  ServerOptions options_;
  std::unique_ptr<ResponseCache> cache_;
  std::unique_ptr<RateLimiter> limiter_;
  std::unique_ptr<ModelManager> models_;
  std::unique_ptr<SystemMetrics> system_metrics_;
  bool has_failed_ = false;  // set before the server is shared
  std::atomic<bool> stopping_{false};
  std::mutex stop_mutex_;
  bool stopped_ = false;
};

inline Server* of(TRITONSERVER_Server* s) { return reinterpret_cast<Server*>(s); }

}  // namespace nereid::server
