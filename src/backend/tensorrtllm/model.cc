// Requests of the tensorrt_llm model on their way through the executor.
#include "backend/tensorrtllm/model.h"

#include <algorithm>

#include "base/clock.h"

namespace nereid::backend {
namespace {

const char* reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNotFinished:
      return "not_finished";
    case FinishReason::kEndId:
      return "end_id";
    case FinishReason::kStopWords:
      return "stop_words";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kTimedOut:
      return "timed_out";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

int64_t nanoseconds(Time t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}

StatusOr<std::filesystem::path> model_path(const ModelSettings& settings) {
  for (const char* key : {"gpt_model_path", "engine_dir", "model_dir"}) {
    if (const auto path = settings.parameter(key)) return std::filesystem::path(*path);
  }
  return invalid_argument("model '{}': parameter 'gpt_model_path' is mandatory", settings.name);
}

}  // namespace

StatusOr<std::unique_ptr<TensorrtLlmModel>> TensorrtLlmModel::create(TRITONBACKEND_Model* model) {
  ASSIGN_OR_RETURN(ModelSettings settings, ModelSettings::read(model));
  ASSIGN_OR_RETURN(const std::filesystem::path path, model_path(settings));
  ASSIGN_OR_RETURN(const ExecutorConfig config, read_executor_config(settings));
  ASSIGN_OR_RETURN(auto executor, Executor::create(path, config));
  for (const auto& use : executor->memory()) {
    log_info(fmt::format("{}: {:>8.1f} MiB {}", settings.name,
                         static_cast<double>(use.bytes) / (1 << 20), use.what));
  }
  const std::filesystem::path dir = settings.parameter("tokenizer_dir").value_or(path.string());
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::error_code error;
  if (std::filesystem::exists(dir / "tokenizer.json", error)) {
    ASSIGN_OR_RETURN(tokenizer, text::Tokenizer::load(dir));
  }
  return with_executor(std::move(settings), std::move(executor), std::move(tokenizer));
}

StatusOr<std::unique_ptr<TensorrtLlmModel>> TensorrtLlmModel::with_executor(
    ModelSettings settings, std::unique_ptr<Executor> executor,
    std::shared_ptr<const text::Tokenizer> tokenizer) {
  std::unique_ptr<TensorrtLlmModel> m(new TensorrtLlmModel);
  m->settings_ = std::move(settings);
  m->executor_ = std::move(executor);
  m->tokenizer_ = std::move(tokenizer);
  m->context_.decoupled = m->settings_.decoupled;
  m->context_.default_end_ids = m->executor_->default_end_ids();
  ASSIGN_OR_RETURN(m->context_.exclude_input_default,
                   m->settings_.boolean("exclude_input_in_output", false));
  ASSIGN_OR_RETURN(const ExecutorConfig config, read_executor_config(m->settings_));
  m->max_queue_size_ = config.max_queue_size;
  for (const auto& [key, period] : {std::pair{"cancellation_check_period_ms", &m->cancel_period_},
                                    std::pair{"stats_check_period_ms", &m->stats_period_}}) {
    ASSIGN_OR_RETURN(const int64_t ms, m->settings_.integer(key, 100));
    if (ms < 1 || ms > 60000) {
      return invalid_argument("model '{}': parameter '{}' is {}, expected 1 to 60000",
                              m->settings_.name, key, ms);
    }
    *period = std::chrono::milliseconds(ms);
  }
  m->metrics_ = std::make_unique<ModelMetrics>(m->settings_.name, m->settings_.version);
  m->metrics_->publish(m->executor_->stats());
  m->watch_ = std::thread([model = m.get()] { model->watch(); });
  return m;
}

TensorrtLlmModel::~TensorrtLlmModel() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_all();
  if (watch_.joinable()) watch_.join();
  executor_.reset();  // joins the callback thread while everything that it uses is still here
}

void TensorrtLlmModel::execute(std::unique_ptr<Request> request) {
  const uint64_t exec_start = now_ns();
  const auto refuse = [&](const Status& status) {
    Responder responder(request->raw());
    responder.fail(status);
  };
  const auto stopping = request->scalar<bool>("stop");
  if (!stopping.ok()) return refuse(stopping.status());
  if (stopping->value_or(false)) return stop(*request);
  auto generation = read_generation_request(*request, context_);
  if (!generation.ok()) return refuse(generation.status());
  auto active = std::make_shared<Active>(std::move(request), tokenizer_);
  active->generation = *std::move(generation);
  active->id = active->request->id();
  active->exec_start = exec_start;
  start(std::move(active));
}

void TensorrtLlmModel::start(std::shared_ptr<Active> active) {
  auto& wanted = active->generation.request;
  const bool sends_prompt = !active->generation.exclude_input && !wanted.streaming;
  if (sends_prompt) active->prompt = wanted.input_token_ids;
  active->compute_start = now_ns();
  {
    std::lock_guard lock(mutex_);
    active_.insert(active);
  }
  nereid::Request request = std::move(wanted);
  wanted.streaming = request.streaming;
  auto id = executor_->enqueue(std::move(request), [this, active](Response response) {
    on_response(active, std::move(response));
  });
  std::unique_lock lock(mutex_);
  if (id.ok()) {
    active->executor_id = *id;
    return;
  }
  active_.erase(active);
  lock.unlock();
  const bool full = absl::IsResourceExhausted(id.status());
  active->responder.fail(
      full ? unavailable("Maximum queue size of {} has been reached, please try again later",
                         max_queue_size_)
           : id.status());
}

void TensorrtLlmModel::stop(Request& request) {
  Responder responder(request.raw());
  const std::string id = request.id();
  if (id.empty()) {
    return responder.fail(
        invalid_argument("Trying to stop a request but request ID is not provided"));
  }
  std::vector<RequestId> found;
  {
    std::lock_guard lock(mutex_);
    for (const auto& active : active_) {
      if (active->id == id && !active->over) {
        active->cancelled = true;
        if (active->executor_id != 0) found.push_back(active->executor_id);
      }
    }
  }
  for (RequestId executor_id : found) executor_->cancel(executor_id);
  // An answer without outputs; a request that has ended already is no error.
  if (Status s = responder.send({}, true); !s.ok()) responder.fail(s);
}

void TensorrtLlmModel::on_response(const std::shared_ptr<Active>& active, Response response) {
  Status status = response.status;
  if (status.ok()) {
    SequenceOutput& output = response.outputs[0];
    if (output.finish_reason == FinishReason::kCancelled) output.token_ids.clear();
    std::vector<TokenId> tokens = std::move(output.token_ids);
    if (active->generation.request.streaming) {
      tokens = active->characters.push(tokens, response.is_final);
    }
    if (!response.is_final && tokens.empty()) return;
    std::vector<StringParameter> parameters;
    if (response.is_final) {
      parameters.push_back({"nereid_finish_reason", reason_name(output.finish_reason)});
    }
    if (response.is_final) metrics_->finished(response);
    status = active->responder.send(outputs_of(*active, response, tokens), response.is_final,
                                    parameters);
  }
  if (!status.ok()) {
    active->request->set_failed();
    active->responder.fail(status);
  }
  RequestId abandoned = 0;
  {
    std::lock_guard lock(mutex_);
    if (response.is_final || !response.status.ok()) {
      active->over = true;
      active_.erase(active);
    } else if (!status.ok()) {
      active->cancelled = true;
      abandoned = active->executor_id;
    }
  }
  if (abandoned != 0) executor_->cancel(abandoned);
  if (!active->over) return;
  active->request->set_times(active->exec_start, active->compute_start, now_ns());
  active->request->release();
}

std::vector<Output> TensorrtLlmModel::outputs_of(const Active& active, const Response& response,
                                                 const std::vector<TokenId>& tokens) const {
  const Request& request = *active.request;
  std::vector<TokenId> ids = active.prompt;
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  const auto length = static_cast<int32_t>(ids.size());
  std::vector<Output> out;
  out.push_back(make_output("output_ids", {1, 1, length}, ids));
  out.push_back(make_output("sequence_length", {1, 1}, std::vector<int32_t>{length}));
  const auto add = [&](const char* name, auto value) {
    const auto& declared = settings_.outputs;
    if (std::find(declared.begin(), declared.end(), name) == declared.end()) return;
    out.push_back(make_output(name, {1, 1}, std::vector{value}));
  };
  if (active.generation.return_num_input_tokens && request.wants_output("num_input_tokens")) {
    add("num_input_tokens", response.num_input_tokens);
  }
  if (active.generation.return_num_output_tokens && request.wants_output("num_output_tokens")) {
    add("num_output_tokens", response.outputs[0].num_output_tokens);
  }
  if (active.generation.return_perf_metrics) {
    const RequestMetrics& m = response.metrics;
    add("kv_cache_alloc_new_blocks", m.allocated_blocks);
    add("kv_cache_reused_blocks", m.reused_blocks);
    add("kv_cache_alloc_total_blocks", m.allocated_blocks);
    add("arrival_time_ns", nanoseconds(m.arrival));
    add("first_scheduled_time_ns", nanoseconds(m.first_scheduled));
    add("first_token_time_ns", nanoseconds(m.first_token));
    add("last_token_time_ns", nanoseconds(m.last_token));
    add("acceptance_rate", 0.0f);
    add("total_accepted_draft_tokens", int32_t{0});
    add("total_draft_tokens", int32_t{0});
  }
  return out;
}

void TensorrtLlmModel::watch() {
  Time next_stats = now() + stats_period_;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::min(cancel_period_, stats_period_), [&] { return closing_; })) {
    std::vector<RequestId> left;
    for (const auto& active : active_) {
      // A cancel that came before the executor's id was known is repeated here.
      if (active->executor_id == 0 || active->over) continue;
      if (!active->cancelled && !active->responder.is_cancelled()) continue;
      active->cancelled = true;
      left.push_back(active->executor_id);
    }
    lock.unlock();
    for (RequestId id : left) executor_->cancel(id);
    if (now() >= next_stats) {
      metrics_->publish(executor_->stats());
      next_stats = now() + stats_period_;
    }
    lock.lock();
  }
}

}  // namespace nereid::backend
