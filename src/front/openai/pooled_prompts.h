// Pooling inferences: many prompts of one request, a bounded number of them at a time.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "front/bridge/inference_call.h"
#include "front/openai/handlers.h"

namespace nereid::front {

// One request in flight; on the exchange's strand only.
class PooledPrompts : public std::enable_shared_from_this<PooledPrompts> {
 public:
  PooledPrompts(OpenAiContextPtr context, ExchangePtr exchange, LanguageModelPtr model);
  virtual ~PooledPrompts() = default;

  // Makes the prompts' tokens, and checks that the model supports the request. On any
  // thread, before start().
  virtual std::optional<ApiError> read_prompts() = 0;

  const LanguageModel& model() const { return *model_; }
  int64_t num_prompt_tokens() const { return num_prompt_tokens_; }
  void start(TRITONSERVER_Server*, Tracer&);  // server and tracer of the context

 protected:
  virtual const CommonOptions& common() const = 0;
  virtual std::string pooling() const = 0;  // value of the tensor "pooling"
  virtual int64_t num_values() const = 0;   // values per prompt
  virtual void finish(std::vector<float>& /*values*/) const {}
  // The answer, once all values are there.
  virtual CountedText body() const = 0;

  // A fault of the field `param` if the model cannot take the prompt or the budget is full.
  std::optional<ApiError> add_prompt(std::vector<int32_t> ids, const char* param);
  const std::vector<std::vector<float>>& values() const { return values_; }
  json::object usage() const;

  const OpenAiContextPtr context_;
  const ExchangePtr exchange_;
  const LanguageModelPtr model_;

 private:
  struct Running {
    std::shared_ptr<InferenceCall> call;
    Status status;
  };

  void run();
  Status start_one(size_t index);
  void take(size_t index, const InferenceReply& reply);
  Status check_values(size_t index) const;
  void retry_or_fail(size_t index, const Status& status);
  void fail(const ApiError& error);
  void cancel();
  void answer();

  std::vector<std::vector<int32_t>> prompts_;
  BudgetShare prompts_share_;
  std::vector<std::vector<float>> values_;  // one for each prompt; empty until received
  std::deque<size_t> waiting_;              // indices of prompts
  std::map<size_t, Running> running_;       // by index of prompt
  size_t max_running_ = 64, num_done_ = 0, num_held_ = 0;
  int64_t num_prompt_tokens_ = 0, cached_tokens_ = 0;
  bool ended_ = false;
};

// An error if the model has no pooling.
std::optional<ApiError> check_pooling(const LanguageModel& model);

using PooledPromptsPtr = std::shared_ptr<PooledPrompts>;

// Parses the request, on a worker if it is long, and queues it to start.
void handle_pooled(const OpenAiContextPtr& context, const ExchangePtr& exchange,
                   std::function<std::variant<PooledPromptsPtr, ApiError>()> read);

}  // namespace nereid::front
