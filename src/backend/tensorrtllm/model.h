// The tensorrt_llm model: Triton requests in, executor requests out, and the way back.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "backend/common/triton.h"
#include "backend/tensorrtllm/metrics.h"
#include "backend/tensorrtllm/request_reader.h"
#include "backend/tensorrtllm/whole_characters.h"
#include "nereid/executor.h"
#include "text/tokenizer.h"

namespace nereid::backend {

// The executor's options from the model's parameters; errors name the parameter.
StatusOr<ExecutorConfig> read_executor_config(const ModelSettings& settings);

class TensorrtLlmModel {
 public:
  static StatusOr<std::unique_ptr<TensorrtLlmModel>> create(TRITONBACKEND_Model* model);
  // Over an executor that exists already; what create() ends with.
  static StatusOr<std::unique_ptr<TensorrtLlmModel>> with_executor(
      ModelSettings settings, std::unique_ptr<Executor> executor,
      std::shared_ptr<const text::Tokenizer> tokenizer);
  ~TensorrtLlmModel();

  void execute(std::unique_ptr<Request> request);

 private:
  // A request that the executor has. The callback thread alone uses what is not marked otherwise.
  struct Active {
    explicit Active(std::unique_ptr<Request> r, std::shared_ptr<const text::Tokenizer> tokenizer)
        : request(std::move(r)), responder(request->raw()), characters(std::move(tokenizer)) {}
    std::unique_ptr<Request> request;
    Responder responder;  // is_cancelled(): also the watch thread
    WholeCharacters characters;
    std::string id;                // the client's; may be empty
    GenerationRequest generation;  // without the prompt when that is not sent back
    std::vector<TokenId> prompt;
    uint64_t exec_start = 0, compute_start = 0;
    RequestId executor_id = 0;  // guarded by mutex_; 0 until enqueue returned
    bool over = false;          // guarded by mutex_
    bool cancelled = false;     // guarded by mutex_
  };

  TensorrtLlmModel() = default;
  void start(std::shared_ptr<Active> active);
  void stop(Request& request);
  void on_response(const std::shared_ptr<Active>& active, Response response);
  std::vector<Output> outputs_of(const Active& active, const Response& response,
                                 const std::vector<TokenId>& tokens) const;
  void watch();

  ModelSettings settings_;
  ReadContext context_;
  int64_t max_queue_size_ = 0;
  std::chrono::milliseconds cancel_period_{100}, stats_period_{100};
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::unique_ptr<ModelMetrics> metrics_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::set<std::shared_ptr<Active>> active_;
  bool closing_ = false;
  std::thread watch_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace nereid::backend
