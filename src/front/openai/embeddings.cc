// POST /v1/embeddings: one inference for each input, a bounded number of them at a time.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "front/http/json_text.h"
#include "front/openai/engine_request.h"
#include "front/openai/generation.h"
#include "front/openai/handlers.h"
#include "front/trace/exchange_trace.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxRunning = 64;  // inferences of one request

// The first `dimensions` values, of length 1 when that is wanted.
void finish_embedding(const EmbeddingRequest& request, std::vector<float>& values) {
  const auto size = static_cast<int64_t>(values.size());
  values.resize(static_cast<size_t>(std::min(size, request.dimensions.value_or(size))));
  if (!request.normalize) return;
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  const double length = std::sqrt(sum);
  if (length == 0) return;
  for (float& v : values) v = static_cast<float>(v / length);
}

void append_values(const std::vector<float>& values, bool base64, std::string& out) {
  if (base64) {
    out += '"';
    out += absl::Base64Escape(
        {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
    out += '"';
    return;
  }
  out += '[';
  for (size_t i = 0; i < values.size(); ++i)
    fmt::format_to(std::back_inserter(out), "{}{}", i > 0 ? "," : "", values[i]);
  out += ']';
}

// One request in flight; on the exchange's strand only.
class Embedding : public std::enable_shared_from_this<Embedding> {
 public:
  Embedding(OpenAiContextPtr context, ExchangePtr exchange, LanguageModelPtr model,
            EmbeddingRequest request)
      : context_(std::move(context)),
        exchange_(std::move(exchange)),
        model_(std::move(model)),
        request_(std::move(request)) {
    envelope_.id = answer_id("embd-", request_.common);
    const backend::LoraModule* const adapter = model_->adapter(request_.common.model);
    envelope_.model = adapter ? adapter->name : model_->id;
  }

  // The inputs' tokens, and whether the model can do what is asked. On any thread, before start().
  std::optional<ApiError> read_inputs() {
    if (auto error = check_model()) return error;
    for (Prompt& input : request_.inputs) {
      auto ids = prompt_ids(*model_, input, request_.add_special_tokens,
                            request_.common.sampling.max_prompt_tokens, "input");
      if (auto* error = std::get_if<ApiError>(&ids)) return std::move(*error);
      prompts_.push_back(std::get<std::vector<int32_t>>(std::move(ids)));
      const std::vector<int32_t>& prompt = prompts_.back();
      input = {};
      if (prompt.empty()) return ApiError{400, "'input': a text without tokens", "input", ""};
      if (std::ssize(prompt) > model_->max_seq_len)
        return ApiError{400,
                        fmt::format("This model's maximum context length is {} tokens, but input "
                                    "{} has {}",
                                    model_->max_seq_len, prompts_.size() - 1, prompt.size()),
                        "input", "context_length_exceeded"};
      if (auto error = check_ids(*model_, prompt, "input")) return error;
      num_prompt_tokens_ += std::ssize(prompt);
    }
    return std::nullopt;
  }

  const LanguageModel& model() const { return *model_; }
  int64_t num_prompt_tokens() const { return num_prompt_tokens_; }

  void start() {
    embeddings_.resize(prompts_.size());
    for (size_t i = 0; i < prompts_.size(); ++i) waiting_.push_back(i);
    exchange_->on_disconnect([self = shared_from_this()] { self->cancel(); });
    run();
  }

 private:
  std::optional<ApiError> check_model() const {
    if (model_->engine->input("pooling") == nullptr)
      return api_error(
          unsupported("model '{}' gives no embeddings: its configuration has no input 'pooling'",
                      model_->engine_name));
    if (model_->embedding_size == 0)
      return api_error(unsupported(
          "model '{}' gives no embeddings: its engine has no hidden states as an output",
          model_->engine_name));
    if (!model_->pooling.ok()) return api_error(model_->pooling.status());
    if (request_.dimensions.value_or(1) <= model_->embedding_size) return std::nullopt;
    return ApiError{400,
                    fmt::format("'dimensions': {} is not in [1, {}]", *request_.dimensions,
                                model_->embedding_size),
                    "dimensions", ""};
  }

  // Starts what waits, as far as there may be more.
  void run() {
    while (!ended_ && !waiting_.empty() && running_.size() < max_running_) {
      const size_t index = waiting_.front();
      waiting_.pop_front();
      if (const Status status = start_one(index); !status.ok()) retry_or_fail(index, status);
    }
  }

  Status start_one(size_t index) {
    ASSIGN_OR_RETURN(InferenceSpec spec,
                     embedding_request(*model_, prompts_[index], request_.common.sampling));
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

  void take(size_t index, const InferenceReply& reply) {
    if (ended_) return;
    Running& running = running_[index];
    if (running.status.ok()) running.status = reply.status;
    if (const Tensor* values = reply.status.ok() ? reply.output("embedding") : nullptr) {
      auto read = elements<float>(*values);
      if (read.ok()) embeddings_[index] = *std::move(read);
      cached_tokens_ += reply.int_parameter("nereid_cached_tokens");
    }
    if (!reply.final) return;
    const Status status = running.status.ok() ? check_embedding(index) : running.status;
    running_.erase(index);
    if (status.ok()) {
      finish_embedding(request_, embeddings_[index]);
      prompts_[index] = {};
      num_held_ += embeddings_[index].size() * sizeof(float);
      exchange_->hold(num_held_);
      if (++num_done_ == embeddings_.size()) return answer();
    } else {
      retry_or_fail(index, status);
    }
    run();
  }

  // A prompt that was given up, as at the end of the server, has none.
  Status check_embedding(size_t index) const {
    const size_t size = embeddings_[index].size();
    if (static_cast<int64_t>(size) == model_->embedding_size) return ok();
    return internal_error("model '{}' gave {} values for input {}, expected {}",
                          model_->engine_name, size, index, model_->embedding_size);
  }

  // What finds a full queue while others of this request run waits for one of these.
  void retry_or_fail(size_t index, const Status& status) {
    if (status.code() != absl::StatusCode::kUnavailable || running_.empty())
      return fail(api_error(status));
    waiting_.push_front(index);
    max_running_ = running_.size();
  }

  void fail(const ApiError& error) {
    if (ended_) return;
    cancel();
    exchange_->send(openai_error(error));
  }

  void cancel() {
    ended_ = true;
    for (const auto& [index, running] : running_) running.call->cancel();
  }

  void answer() {
    ended_ = true;
    const bool is_quick = num_held_ <= kQuickReplyBytes;
    context_->workers.run(
        exchange_, is_quick, [self = shared_from_this()] { return self->body(); },
        [self = shared_from_this()](std::string body) {
          self->exchange_->send(
              {200, "application/json", warnings(self->request_.common), std::move(body)});
        });
  }

  // Many numbers: written as text at once, without a tree.
  std::string body() const {
    json::object rest = envelope_.make("list");
    rest["usage"] =
        json::object{{"prompt_tokens", num_prompt_tokens_},
                     {"total_tokens", num_prompt_tokens_},
                     {"prompt_tokens_details", json::object{{"cached_tokens", cached_tokens_}}}};
    std::string out;
    append_json(out, rest);
    out.back() = ',';
    out += "\"data\":[";
    for (size_t i = 0; i < embeddings_.size(); ++i) {
      fmt::format_to(std::back_inserter(out), R"({}{{"object":"embedding","index":{},"embedding":)",
                     i > 0 ? "," : "", i);
      append_values(embeddings_[i], request_.base64, out);
      out += '}';
    }
    out += "]}";
    return out;
  }

  struct Running {
    std::shared_ptr<InferenceCall> call;
    Status status;
  };

  OpenAiContextPtr context_;
  ExchangePtr exchange_;
  LanguageModelPtr model_;
  EmbeddingRequest request_;
  Envelope envelope_;
  std::vector<std::vector<int32_t>> prompts_;
  std::vector<std::vector<float>> embeddings_;  // one for each prompt; empty until it is there
  std::deque<size_t> waiting_;                  // prompts
  std::map<size_t, Running> running_;           // by prompt
  size_t max_running_ = kMaxRunning, num_done_ = 0, num_held_ = 0;
  int64_t num_prompt_tokens_ = 0, cached_tokens_ = 0;
  bool ended_ = false;
};

using EmbeddingPtr = std::shared_ptr<Embedding>;

std::variant<EmbeddingPtr, ApiError> read_embedding(const OpenAiContextPtr& context,
                                                    const ExchangePtr& exchange) {
  const std::string& body = exchange->request().body;
  auto request = parse_embedding_request(body, memory_for_json(context->budget, body.size()));
  if (auto* error = std::get_if<ApiError>(&request)) return std::move(*error);
  auto& parsed = std::get<EmbeddingRequest>(request);
  auto model = accept_request(*context, exchange->request(), parsed.common);
  if (auto* error = std::get_if<ApiError>(&model)) return std::move(*error);
  auto embedding = std::make_shared<Embedding>(
      context, exchange, std::get<LanguageModelPtr>(std::move(model)), std::move(parsed));
  if (auto error = embedding->read_inputs()) return *std::move(error);
  return embedding;
}

}  // namespace

void handle_embedding(const OpenAiContextPtr& context, const ExchangePtr& exchange) {
  const auto read = [context, exchange] { return read_embedding(context, exchange); };
  const auto start = [context, exchange](std::variant<EmbeddingPtr, ApiError> embedding) {
    if (const auto* error = std::get_if<ApiError>(&embedding)) {
      exchange->send(openai_error(*error));
    } else {
      const auto& ready = std::get<EmbeddingPtr>(embedding);
      start_in_turn(*context, exchange, ready->model(), ready->num_prompt_tokens(),
                    [ready] { ready->start(); });
    }
  };
  const bool is_quick =
      context->models.is_loaded() && exchange->request().body.size() <= kQuickPromptBytes;
  context->workers.run(exchange, is_quick, read, start);
}

}  // namespace nereid::front
