// POST /v1/score and /v1/rerank: one inference for each pair of texts, concatenated for the model.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "front/http/json_text.h"
#include "front/openai/generation.h"
#include "front/openai/pooled_prompts.h"

namespace nereid::front {
namespace {

// Scores of a model with one label.
class Scores : public PooledPrompts {
 public:
  Scores(const OpenAiContextPtr& context, const ExchangePtr& exchange, LanguageModelPtr model,
         ScoreRequest request, std::string_view id_prefix = "score-")
      : PooledPrompts(context, exchange, std::move(model)),
        request_(std::move(request)),
        envelope_{answer_id(id_prefix, request_.common), model_->id} {}

  std::optional<ApiError> read_prompts() override {
    if (auto error = check_pooling(*model_)) return error;
    if (model_->num_labels != 1)
      return api_error(
          unsupported("model '{}' cannot score pairs of texts: it has {} labels, expected 1 (a "
                      "score head, of an architecture ...ForSequenceClassification)",
                      model_->id, model_->num_labels));
    for (size_t i = 0; i < request_.size(); ++i) {
      const Prompt text = request_.pair(i);
      auto ids =
          prompt_ids(*model_, text, /*add_special_tokens=*/true, request_.common.sampling,
                     "documents", context_->budget, [x = exchange_] { return x->disconnected(); });
      if (auto* error = std::get_if<ApiError>(&ids)) return std::move(*error);
      if (auto error = add_prompt(std::get<std::vector<int32_t>>(std::move(ids)), "documents"))
        return error;
    }
    return std::nullopt;
  }

 protected:
  const CommonOptions& common() const override { return request_.common; }
  std::string pooling() const override { return "score"; }
  int64_t num_values() const override { return 1; }

  double score(size_t index) const {
    const double value = values()[index][0];
    return request_.activates ? 1 / (1 + std::exp(-value)) : value;
  }

  CountedText body() const override {
    json::object out = envelope_.make("list");
    json::array data;
    for (size_t i = 0; i < values().size(); ++i)
      data.push_back({{"index", i}, {"object", "score"}, {"score", score(i)}});
    out["data"] = std::move(data);
    out["usage"] = usage();
    return counted(out);
  }

  CountedText counted(const json::value& answer) const {
    CountedText body(context_->budget);
    body.text = json::serialize(answer);
    body.count();
    return body;
  }

  const ScoreRequest request_;
  const Envelope envelope_;
};

class Rerank : public Scores {
 public:
  Rerank(const OpenAiContextPtr& context, const ExchangePtr& exchange, LanguageModelPtr model,
         RerankRequest request)
      : Scores(context, exchange, std::move(model), static_cast<ScoreRequest&&>(request),
               "rerank-"),
        num_wanted_(request.num_wanted),
        returns_documents_(request.returns_documents) {}

 private:
  // Sorted by score, stable.
  CountedText body() const override {
    std::vector<size_t> order(values().size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::ranges::greater(),
                             [&](size_t i) { return values()[i][0]; });
    order.resize(num_wanted_);
    json::array results;
    for (const size_t i : order) {
      json::object result = {{"index", i}, {"relevance_score", score(i)}};
      if (returns_documents_) result["document"] = json::object{{"text", request_.second[i]}};
      results.push_back(std::move(result));
    }
    return counted(json::object{{"id", envelope_.id},
                                {"model", envelope_.model},
                                {"results", std::move(results)},
                                {"usage", usage()}});
  }

  const size_t num_wanted_;
  const bool returns_documents_;
};

template <class Answer, class Request>
Handler handler_of(const OpenAiContextPtr& context,
                   Parsed<Request> (*parse)(std::string_view, json::storage_ptr)) {
  return [context, parse](const ExchangePtr& x) {
    handle_pooled(context, x, [context, parse, x]() -> std::variant<PooledPromptsPtr, ApiError> {
      auto accepted = accept_body(*context, x, parse);
      if (auto* error = std::get_if<ApiError>(&accepted)) return std::move(*error);
      auto& [model, request] = std::get<0>(accepted);
      return std::make_shared<Answer>(context, x, std::move(model), std::move(request));
    });
  };
}

}  // namespace

void add_score_routes(Router& router, const OpenAiContextPtr& context) {
  for (const char* path : {"/v1/score", "/score"})
    router.add("POST", path, kComputes, handler_of<Scores>(context, parse_score_request));
  for (const char* path : {"/v1/rerank", "/v2/rerank", "/rerank"})
    router.add("POST", path, kComputes, handler_of<Rerank>(context, parse_rerank_request));
}

}  // namespace nereid::front
