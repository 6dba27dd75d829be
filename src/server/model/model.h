// A loaded model version: the part that ensembles and backend models share.
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

  // Validates and queues. OK: the core owns the request until its release callback. Otherwise
  // nothing happened.
  Status enqueue(InferenceRequest* request);

  // From now on new requests are refused.
  void close();
  bool is_closed();
  // Closes it and waits until `deadline` for running requests, then shortly for what could respond
  // to requests that are over. False when some were still running: the model must then be left as
  // it is, for ever, because a backend still uses it.
  bool drain(Time deadline);
  // Frees what a drained model holds; by its last owner, or while the server stops. A backend may
  // take any time for it.
  void take_down();

  // One accepted request is over: released, and its FINAL was delivered. Or one sequence.
  void request_ended();
  // The request's response context was destroyed: no response factory refers to it any more.
  void responder_gone() { num_responders_.fetch_sub(1); }
  // Accepted requests that are not over, sequences, and executions by others' threads.
  int64_t num_running();
  // A sequence has begun: drain() waits for its end, and its requests are taken until then.
  void sequence_began() { hold(); }
  // A thread of another owner runs the model's code: drain() waits until request_ended().
  void execution_began() { hold(); }

  // What it refers to stays as it is while the model lives, also when another takes its place.
  const ModelConfig& config() const { return *config_.load(); }
  int64_t version() const { return version_; }
  const std::filesystem::path& dir() const { return dir_; }  // the model's folder, without version
  Server* server() const { return server_; }
  ModelStatistics& statistics() { return *statistics_; }
  // Class names by output, from the outputs' label files.
  using ClassNames = std::map<std::string, std::vector<std::string>>;
  const std::shared_ptr<const ClassNames>& class_names() const { return class_names_; }
  void set_class_names(ClassNames names);
  // Reads the label files. Internal when one is missing.
  Status read_class_names();
  // The metadata's JSON around the list of versions. Written once: front ends ask for every
  // generate request.
  struct MetadataText {
    std::string before_versions, after_versions;
  };
  const MetadataText& metadata_text();
  // All outputs, by name.
  const std::vector<const TensorSpec*>& sorted_outputs();
  // True for models that send requests of their own: these drain before the others.
  virtual bool calls_models() const { return false; }
  // Whether a thread that sends a response may run what the response leads to; nereid/backend.h.
  virtual bool lends_thread() { return false; }
  virtual bool decoupled() const { return config().decoupled; }

 protected:
  // `context` is armed. OK: the request is taken over.
  virtual Status accept(InferenceRequest* request,
                        const std::shared_ptr<ResponseContext>& context) = 0;
  // Whether `request` belongs to a sequence that runs.
  virtual bool continues(const InferenceRequest&) { return false; }
  void set_config(ModelConfig config);  // by one thread at a time
  // Called by take_down().
  virtual void unload() {}

 private:
  void hold();
  void wait_for_responders(Time deadline);

  Server* server_;
  std::deque<ModelConfig> configs_;  // all that config() has referred to
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
