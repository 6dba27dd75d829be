// The server core: a set of loaded models that can be asked about, sent requests, and stopped.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/backend_model.h"
#include "server/model.h"
#include "server/options.h"

namespace nereid::server {

class Server {
 public:
  // Loads all models of all repositories. Internal, naming each model and why, when one fails and
  // exit_on_error is set.
  static StatusOr<std::unique_ptr<Server>> create(ServerOptions options);
  ~Server();  // stops

  // Lets running requests finish and unloads, within the exit timeout. Internal when that was not
  // enough.
  Status stop();

  // version -1: the newest loaded. NotFound / Unavailable with the protocol's texts.
  StatusOr<std::shared_ptr<Model>> find(const std::string& name, int64_t version) const;

  bool is_live() const { return !stopping_.load(); }
  Status check_running() const;  // Unavailable while exiting
  bool is_ready() const;

  // JSON documents of the protocol.
  std::string metadata() const;
  StatusOr<std::string> model_metadata(const std::string& name, int64_t version) const;
  std::string index(bool ready_only) const;

  void set_exit_timeout(uint32_t seconds) { options_.exit_timeout_s = seconds; }

 private:
  explicit Server(ServerOptions options) : options_(std::move(options)) {}

  struct Version {
    std::shared_ptr<Model> model;  // null: not loaded
    std::string reason;            // why not
  };
  struct Entry {
    std::filesystem::path dir;
    StatusOr<ModelConfig> config;
    std::map<int64_t, Version> versions;
  };

  Status scan();
  Status scan_repository(const std::filesystem::path& root);
  void load_all();
  void load(Entry& entry, int64_t version);
  Status load_backend_model(Entry& entry, int64_t version, std::unique_ptr<ModelStatistics> stats);
  // Unavailable while a composing model may still load; InvalidArgument when one never will.
  Status load_ensemble(Entry& entry, int64_t version, std::unique_ptr<ModelStatistics> stats);
  StatusOr<Backend*> backend_for(const ModelConfig& config, const std::filesystem::path& dir,
                                 int64_t version);
  std::string failures() const;  // "" when everything loaded
  void log_table() const;

  ServerOptions options_;
  std::map<std::string, std::unique_ptr<Backend>> backends_;  // by path; destroyed after the models
  std::map<std::string, Entry> entries_;                      // by model name; fixed after scan()
  mutable std::shared_mutex versions_mutex_;  // Entry::versions: backends may ask while others load
  std::vector<std::shared_ptr<Model>> load_order_;
  std::atomic<bool> stopping_{false};
  std::mutex stop_mutex_;
  bool stopped_ = false;
};

inline Server* of(TRITONSERVER_Server* s) { return reinterpret_cast<Server*>(s); }

}  // namespace nereid::server
