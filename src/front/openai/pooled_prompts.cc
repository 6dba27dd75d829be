#include "front/openai/pooled_prompts.h"

#include <utility>

#include "front/openai/engine_request.h"
#include "front/openai/generation.h"
#include "front/trace/exchange_trace.h"

namespace nereid::front {

PooledPrompts::PooledPrompts(OpenAiContextPtr context, ExchangePtr exchange, LanguageModelPtr model)
    : context_(std::move(context)),
      exchange_(std::move(exchange)),
      model_(std::move(model)),
      prompts_share_(context_->budget) {}

std::optional<ApiError> PooledPrompts::add_prompt(std::vector<int32_t> ids, const char* param) {
  if (ids.empty())
    return ApiError{400, fmt::format("'{}': a text without tokens", param), param, ""};
  if (std::ssize(ids) > model_->max_seq_len)
    return ApiError{
        400,
        fmt::format("This model's maximum context length is {} tokens, but {} {} has {}",
                    model_->max_seq_len, param, prompts_.size(), ids.size()),
        param, "context_length_exceeded"};
  if (auto error = check_ids(*model_, ids, param)) return error;
  num_prompt_tokens_ += std::ssize(ids);
  prompts_.push_back(std::move(ids));
  const Status room =
      prompts_share_.reserve(static_cast<size_t>(num_prompt_tokens_) * sizeof(int32_t));
  if (!room.ok()) return api_error(room);
  return std::nullopt;
}

std::optional<ApiError> check_pooling(const LanguageModel& model) {
  if (model.engine->input("pooling") == nullptr)
    return api_error(
        unsupported("model '{}' gives no embeddings: its configuration has no input 'pooling'",
                    model.engine_name));
  if (model.embedding_size == 0)
    return api_error(
        unsupported("model '{}' gives no embeddings: its engine has no hidden states as an output",
                    model.engine_name));
  return std::nullopt;
}

json::object PooledPrompts::usage() const {
  return {{"prompt_tokens", num_prompt_tokens_},
          {"total_tokens", num_prompt_tokens_},
          {"prompt_tokens_details", json::object{{"cached_tokens", cached_tokens_}}}};
}

void PooledPrompts::start(TRITONSERVER_Server*, Tracer&) {
  values_.resize(prompts_.size());
  for (size_t i = 0; i < prompts_.size(); ++i) waiting_.push_back(i);
  exchange_->on_disconnect([self = shared_from_this()] { self->cancel(); });
  run();
}

// Starts waiting prompts, up to the limit.
void PooledPrompts::run() {
  while (!ended_ && !waiting_.empty() && running_.size() < max_running_) {
    const size_t index = waiting_.front();
    waiting_.pop_front();
    if (const Status status = start_one(index); !status.ok()) retry_or_fail(index, status);
  }
}

Status PooledPrompts::start_one(size_t index) {
  ASSIGN_OR_RETURN(InferenceSpec spec,
                   pooling_request(*model_, prompts_[index], common().sampling, pooling()));
  spec.tenant = exchange_->request().tenant;
  spec.trace = trace_exchange(*context_->tracer, spec.model, *exchange_);
  auto on_reply = [self = shared_from_this(), index](InferenceReply reply) {
    auto shared = std::make_shared<const InferenceReply>(std::move(reply));
    self->exchange_->post([self, index, shared] { self->take(index, *shared); });
  };
  ASSIGN_OR_RETURN(auto call, InferenceCall::start(context_->models.server(), std::move(spec),
                                                   std::move(on_reply)));
  running_[index].call = std::move(call);
  return ok();
}

void PooledPrompts::take(size_t index, const InferenceReply& reply) {
  if (ended_) return;
  Running& running = running_[index];
  if (running.status.ok()) running.status = reply.status;
  if (const Tensor* values = reply.status.ok() ? reply.output("embedding") : nullptr) {
    auto read = elements<float>(*values);
    if (read.ok()) values_[index] = *std::move(read);
    cached_tokens_ += reply.int_parameter("nereid_cached_tokens");
  }
  if (!reply.final) return;
  const Status status = running.status.ok() ? check_values(index) : running.status;
  running_.erase(index);
  if (status.ok()) {
    finish(values_[index]);
    std::vector<int32_t>().swap(prompts_[index]);
    num_held_ += values_[index].size() * sizeof(float);
    if (!exchange_->hold(num_held_))
      return fail({503, std::string(message(context_->budget->refusal())), "", ""});
    if (++num_done_ == values_.size()) return answer();
  } else {
    retry_or_fail(index, status);
  }
  run();
}

// A cancelled prompt, as at a stop of the server, has no values.
Status PooledPrompts::check_values(size_t index) const {
  const size_t size = values_[index].size();
  if (static_cast<int64_t>(size) == num_values()) return ok();
  return internal_error("model '{}' gave {} values for input {}, expected {}", model_->engine_name,
                        size, index, num_values());
}

// A prompt refused by a full queue is retried after another one of this request ends.
void PooledPrompts::retry_or_fail(size_t index, const Status& status) {
  if (status.code() != absl::StatusCode::kUnavailable || running_.empty())
    return fail(api_error(status));
  waiting_.push_front(index);
  max_running_ = running_.size();
}

void PooledPrompts::fail(const ApiError& error) {
  if (ended_) return;
  cancel();
  exchange_->send(openai_error(error));
}

void PooledPrompts::cancel() {
  ended_ = true;
  for (const auto& [index, running] : running_) running.call->cancel();
}

void PooledPrompts::answer() {
  ended_ = true;
  const bool is_quick = num_held_ <= kQuickReplyBytes;
  send_made(
      *context_, exchange_, is_quick, [self = shared_from_this()] { return self->body(); },
      [self = shared_from_this()] { return warnings(self->common()); });
}

void handle_pooled(const OpenAiContextPtr& context, const ExchangePtr& exchange,
                   std::function<std::variant<PooledPromptsPtr, ApiError>()> read) {
  const auto read_all = [read = std::move(read)](Lane) {
    auto prompts = read();
    if (const auto* ready = std::get_if<PooledPromptsPtr>(&prompts))
      if (auto error = (*ready)->read_prompts()) prompts = *std::move(error);
    return prompts;
  };
  read_and_start(context, exchange, read_all);
}

}  // namespace nereid::front
