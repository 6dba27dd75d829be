// The tensorrt_llm model: Triton requests to executor requests, and executor responses
// to Triton responses.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backend/common/triton.h"
#include "backend/tensorrtllm/instance_metrics.h"
#include "backend/tensorrtllm/metrics.h"
#include "backend/tensorrtllm/request_reader.h"
#include "backend/tensorrtllm/response_writer.h"
#include "nereid/executor.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::backend {

class TensorrtLlmModel {
 public:
  static constexpr uint64_t kQuickBytes = 64 << 10;  // inputs are copied and checked

  static StatusOr<std::unique_ptr<TensorrtLlmModel>> create(TRITONBACKEND_Model* model);
  // create() with an existing executor.
  static StatusOr<std::unique_ptr<TensorrtLlmModel>> with_executor(
      ModelSettings settings, std::unique_ptr<Executor> executor,
      std::shared_ptr<const text::Tokenizer> tokenizer);
  ~TensorrtLlmModel();

  void execute(std::unique_ptr<Request> request);

  Status health() const { return executor_->health(); }

  // Whether the executor's response thread may run what follows a response: while at most 64
  // requests are active. At about 10 us for each response it then keeps up with the steps.
  bool lends_thread();
  // See NEREID_OpenParameters.
  const std::string& open_parameters() const { return open_parameters_; }
  // A NEREID_View as JSON. InvalidArgument: there is no such view.
  StatusOr<std::string> view(uint32_t which);

 private:
  // A request that is in the executor.
  struct Active {
    explicit Active(std::unique_ptr<Request> r) : request(std::move(r)), responder(*request) {}
    std::unique_ptr<Request> request;  // guarded by `mutex`
    Responder responder;               // is_cancelled() is also called by the watch thread
    std::string id;                    // the client's id; may be empty
    uint64_t compute_start = 0;
    std::vector<RequestId> executor_ids;  // one for each item; guarded by the model's mutex_
    bool cancelled = false;               // guarded by the model's mutex_
    uint64_t number = 0;                  // order of arrival; guarded by the model's mutex_

    // Guards `request` and all below. start() holds it until all items are queued.
    std::mutex mutex;
    std::vector<ActiveItem> items;
    size_t num_open = 0;  // items that have not ended
    bool over = false;    // the last response is sent; later ones are dropped
  };

  TensorrtLlmModel() = default;
  void start(std::shared_ptr<Active> active);
  void stop(Request& request);
  void on_response(const std::shared_ptr<Active>& active, size_t item_index, Response response);
  void count_tokens(ActiveItem& item, const Response& response);
  void fail_item(Active& active, const Response& response, bool is_last);
  // Ends the whole request with an error and cancels its items.
  void abandon(const std::shared_ptr<Active>& active, const Status& status);
  void end(const std::shared_ptr<Active>& active);
  // Returns lines for the log, if asked for.
  std::vector<std::string> publish(const std::vector<IterationStats>& steps, bool makes_lines);
  void watch();

  ModelSettings settings_;
  std::string open_parameters_;
  ReadContext context_;
  int64_t max_queue_size_ = 0;
  std::chrono::milliseconds cancel_period_{100}, stats_period_{100};
  std::unique_ptr<ResponseWriter> writer_;
  std::unique_ptr<ModelMetrics> metrics_;
  std::unique_ptr<InstanceMetrics> instance_metrics_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::set<std::shared_ptr<Active>> active_;
  uint64_t num_started_ = 0;
  bool closing_ = false;
  std::thread watch_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace nereid::backend
