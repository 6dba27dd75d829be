// POST /v1/embeddings: one inference for each input.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "front/http/json_text.h"
#include "front/openai/generation.h"
#include "front/openai/pooled_prompts.h"

namespace nereid::front {
namespace {

// Keeps the first `dimensions` values, scaled to length 1 if requested.
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

// Usual limits of an embedding's text, in bytes: members beside numbers; a number, its comma.
constexpr size_t kEntryBytes = 64, kNumberBytes = 14;

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

class Embedding : public PooledPrompts {
 public:
  Embedding(const OpenAiContextPtr& context, const ExchangePtr& exchange, LanguageModelPtr model,
            EmbeddingRequest request, EmbeddingForm form)
      : PooledPrompts(context, exchange, std::move(model)),
        request_(std::move(request)),
        form_(form),
        envelope_(envelope_of("embd-", *model_, request_.common)) {}

  std::optional<ApiError> read_prompts() override {
    if (auto error = check_model()) return error;
    for (Prompt& input : request_.inputs) {
      auto ids =
          prompt_ids(*model_, input, request_.add_special_tokens, request_.common.sampling, "input",
                     context_->budget, [x = exchange_] { return x->disconnected(); });
      if (auto* error = std::get_if<ApiError>(&ids)) return std::move(*error);
      input.emplace<std::vector<int32_t>>();  // frees the text
      if (auto error = add_prompt(std::get<std::vector<int32_t>>(std::move(ids)), "input"))
        return error;
    }
    return std::nullopt;
  }

 private:
  const CommonOptions& common() const override { return request_.common; }
  std::string pooling() const override { return *model_->pooling; }
  int64_t num_values() const override { return model_->embedding_size; }
  void finish(std::vector<float>& values) const override { finish_embedding(request_, values); }

  std::optional<ApiError> check_model() const {
    if (auto error = check_pooling(*model_)) return error;
    if (!model_->pooling.ok()) return api_error(model_->pooling.status());
    if (request_.dimensions.value_or(1) <= model_->embedding_size) return std::nullopt;
    return ApiError{400,
                    fmt::format("'dimensions': {} is not in [1, {}]", *request_.dimensions,
                                model_->embedding_size),
                    "dimensions", ""};
  }

  // Many numbers: written as text directly, without a tree.
  CountedText body() const override {
    CountedText body(context_->budget);
    std::string& out = body.text;
    if (form_ == EmbeddingForm::kOllamaOne) {
      out += R"({"embedding":)";
      append_values(values()[0], false, out);
      out += '}';
      return body;
    }
    const bool is_ollama = form_ == EmbeddingForm::kOllama;
    append_json(out, rest());
    out.back() = ',';
    out += is_ollama ? "\"embeddings\":[" : "\"data\":[";
    const size_t width = values().empty() ? 0 : values()[0].size();
    // Reserved in one piece: while a string grows, its old and its new memory exist together.
    const size_t bytes = values().size() * (kEntryBytes + width * kNumberBytes);
    body.expect(bytes);
    out.reserve(out.size() + bytes);
    for (size_t i = 0; i < values().size(); ++i) {
      if (i > 0) out += ',';
      if (!is_ollama)
        fmt::format_to(std::back_inserter(out), R"({{"object":"embedding","index":{},"embedding":)",
                       i);
      append_values(values()[i], request_.base64, out);
      if (!is_ollama) out += '}';
      body.count();
    }
    out += "]}";
    return body;
  }

  // Members beside the embeddings.
  json::object rest() const {
    if (form_ == EmbeddingForm::kOpenAi) {
      json::object out = envelope_.make("list");
      out["usage"] = usage();
      return out;
    }
    const auto nanoseconds = [](Clock::duration d) {
      return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count();
    };
    return {{"model", envelope_.model},
            {"total_duration", nanoseconds(Clock::now() - begun_)},
            {"load_duration", 0},
            {"prompt_eval_count", num_prompt_tokens()}};
  }

  using Clock = std::chrono::steady_clock;

  EmbeddingRequest request_;
  const EmbeddingForm form_;
  const Clock::time_point begun_ = Clock::now();
  const Envelope envelope_;
};

}  // namespace

void handle_embedding(const OpenAiContextPtr& context, const ExchangePtr& exchange,
                      EmbeddingForm form) {
  handle_pooled(context, exchange, [=]() -> std::variant<PooledPromptsPtr, ApiError> {
    auto accepted = accept_body(*context, exchange, parse_embedding_request);
    if (auto* error = std::get_if<ApiError>(&accepted)) return std::move(*error);
    auto& [model, request] = std::get<0>(accepted);
    return std::make_shared<Embedding>(context, exchange, std::move(model), std::move(request),
                                       form);
  });
}

}  // namespace nereid::front
