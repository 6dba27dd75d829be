// A loaded model version: the base of ensembles and backend models.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/config/model_config.h"
#include "server/metrics/statistics.h"
#include "server/request/request.h"

namespace nereid::server {

class Server;

class Model : public std::enable_shared_from_this<Model> {
 public:
  Model(Server* server, ModelConfig config, int64_t version, std::filesystem::path dir,
        std::unique_ptr<ModelStatistics> statistics);
  virtual ~Model() = default;

  // Validates and queues. OK: the core owns the request until its release callback. On an error
  // nothing has happened.
  Status enqueue(InferenceRequest* request);

  // Refuses requests from now on.
  void close();
  bool is_closed();
  // Closes the model and waits until `deadline` for running requests, then briefly for response
  // factories of finished ones. False: some still run, and the model must never be destroyed, since
  // a backend still uses it.
  bool drain(Time deadline);
  // Frees a drained model's resources; called by its last owner, or while the server stops. The
  // backend may take any time.
  void take_down();

  // Counts an accepted request as over (released, FINAL delivered), or a sequence.
  void request_ended();
  // Called when a request's response context is destroyed: no response factory
  // refers to it any more.
  void responder_gone() { num_responders_.fetch_sub(1); }
  // Accepted requests that are not over, sequences, and executions on callers' threads.
  int64_t num_running();
  // Called when a sequence begins: drain() waits for its end, and its requests are
  // accepted until then.
  void sequence_began() { hold(); }
  // Called before a caller's thread runs the model's code: drain() waits until request_ended().
  void execution_began() { hold(); }

  // The current configuration. The reference is valid while the model lives,
  // also after set_config().
  const ModelConfig& config() const { return *config_.load(); }
  int64_t version() const { return version_; }
  const std::filesystem::path& dir() const { return dir_; }  // the model's folder, version excluded
  Server* server() const { return server_; }
  ModelStatistics& statistics() { return *statistics_; }
  // Class names by output, from the label files.
  using ClassNames = std::map<std::string, std::vector<std::string>>;
  const std::shared_ptr<const ClassNames>& class_names() const { return class_names_; }
  void set_class_names(ClassNames names);
  // Reads the label files. Internal: one is missing.
  Status read_class_names();
  // The metadata's JSON before and behind the list of versions, written once: front ends read it
  // for every generate request.
  struct MetadataText {
    std::string before_versions, after_versions;
  };
  const MetadataText& metadata_text();
  // All outputs, sorted by name.
  const std::vector<const TensorSpec*>& sorted_outputs();
  // True for models that send requests to others: these drain first.
  virtual bool calls_models() const { return false; }
  // Whether a thread that sends a response may run what follows from it; see nereid/backend.h.
  virtual bool lends_thread() { return false; }
  virtual bool decoupled() const { return config().decoupled; }
  // A NEREID_View as JSON, see nereid/backend.h. Unimplemented: it has none; Unavailable: closed.
  virtual StatusOr<std::string> view(uint32_t which);

 protected:
  // `context` is armed. OK: takes the request over.
  virtual Status accept(InferenceRequest* request,
                        const std::shared_ptr<ResponseContext>& context) = 0;
  // Whether `request` belongs to a running sequence.
  virtual bool continues(const InferenceRequest&) { return false; }
  void set_config(ModelConfig config);  // one caller at a time
  // Called by take_down().
  virtual void unload() {}

  // Holds the model against drain() until request_ended(). False: it is closed.
  bool hold_open();

 private:
  void hold();
  void wait_for_responders(Time deadline);

  Server* server_;
  std::deque<ModelConfig> configs_;  // all configurations that config() has returned
  std::atomic<const ModelConfig*> config_;
  int64_t version_;
  std::filesystem::path dir_;
  std::unique_ptr<ModelStatistics> statistics_;
  std::shared_ptr<const ClassNames> class_names_;
  std::once_flag metadata_once_;
  MetadataText metadata_text_;
  std::once_flag outputs_once_;
  std::vector<const TensorSpec*> sorted_outputs_;
  std::mutex mutex_;
  std::condition_variable idle_;
  int64_t num_running_ = 0;
  std::atomic<int64_t> num_responders_{0};  // response contexts of accepted requests
  bool is_closed_ = false;
  bool is_down_ = false;
};

}  // namespace nereid::server
