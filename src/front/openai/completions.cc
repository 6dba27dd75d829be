// POST /v1/completions: one generation per prompt, n choices each, collected or streamed.
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "front/http/json_text.h"
#include "front/openai/generation.h"
#include "front/openai/handlers.h"
#include "front/openai/pictures/read_pictures.h"

namespace nereid::front {
namespace {

struct TextChoice {
  TokenCounts counts;
  std::string text;                    // whole when collecting; unused when streaming
  std::vector<ScoredToken> log_probs;  // as text
  std::vector<int32_t> token_ids;      // as text
  json::value finish_reason;
  json::value stop_reason;
};

struct PromptEcho {
  std::string text;
  int64_t num_characters = 0;
  std::vector<ScoredToken> tokens;  // set once received, if requested
  bool is_scored = false;           // they were received, or never will be
  bool is_sent = false;             // in a stream
};

// One request in flight; on the exchange's strand, or inside deliver().
class Completion : public std::enable_shared_from_this<Completion> {
 public:
  Completion(ExchangePtr exchange, LanguageModelPtr model, OpenAiContextPtr context,
             CompletionRequest request)
      : exchange_(std::move(exchange)),
        model_(std::move(model)),
        context_(std::move(context)),
        request_(std::move(request)),
        envelope_(envelope_of("cmpl-", *model_, request_.common)) {
    if (request_.common.stream) events_.emplace(envelope_, "text_completion");
  }

  // Makes the prompts' tokens. On any thread, before start().
  std::optional<ApiError> read_prompts(Lane lane) {
    const PromptWork work{lane, [x = exchange_] { return x->disconnected(); }};
    auto pictures = read_pictures(*context_, *model_, request_.pictures, work);
    if (auto* error = std::get_if<ApiError>(&pictures)) return std::move(*error);
    pictures_.pictures = std::get<0>(std::move(pictures));
    return tokenize(prompts_, work.is_unwanted);
  }

  const LanguageModel& model() const { return *model_; }
  int64_t num_prompt_tokens() const { return num_prompt_tokens_; }

  void start(TRITONSERVER_Server* server, Tracer& tracer) {
    auto prompts = request_.common.return_token_ids ? prompts_ : std::exchange(prompts_, {});
    const auto n = static_cast<size_t>(request_.common.sampling.n);
    choices_.resize(prompts.size() * n);
    num_running_ = choices_.size();
    for (size_t i = 0; i < prompts.size(); ++i) {
      PromptEcho& echo = echoes_.emplace_back();
      if (request_.echo) echo.text = prompt_text(i);
      echo.num_characters = num_characters(echo.text);
    }
    auto self = shared_from_this();
    for (size_t i = 0; i < prompts.size(); ++i) {
      auto on_piece = [self, first = i * n](Piece piece) {
        self->take(first + piece.index, std::move(piece));
      };
      const auto* const rows = std::get_if<PromptRowsPtr>(&request_.prompts[i]);
      auto started = Generation::start(server, tracer, model_, exchange_, std::move(prompts[i]),
                                       request_.common.sampling, std::move(on_piece),
                                       {.rows = rows ? rows->get() : nullptr,
                                        .pictures = has_pictures() ? &pictures_ : nullptr});
      if (!started.ok()) {
        fail(api_error(started.status()));
        return;
      }
      generations_.push_back(*std::move(started));
    }
    pictures_.pictures.clear();
    exchange_->on_disconnect([self] { self->cancel(); });
  }

 private:
  bool has_pictures() const { return !pictures_.pictures.empty(); }
  // Sets the decoder's prompt of an encoder-decoder model.
  std::optional<ApiError> set_decoder_prompt() {
    const TranslationOptions& t = request_.translation;
    if (t.empty()) return std::nullopt;
    const char* const field = !t.source.empty()   ? "src_lang"
                              : !t.target.empty() ? "tgt_lang"
                                                  : "forced_bos_token_id";
    if (model_->encoder_positions == 0)
      return ApiError{400, fmt::format("'{}': the model has no encoder", field), field,
                      "unsupported_parameter"};
    if (t.target.empty() && !t.forced_bos) return std::nullopt;
    const text::DecoderPrompts& prompts = model_->decoder_prompts;
    auto ids = t.forced_bos ? prompts.with_second(*t.forced_bos) : prompts.into(t.target);
    const char* const other = t.forced_bos ? "forced_bos_token_id" : "tgt_lang";
    if (!ids.ok()) return field_error(other, ids.status());
    request_.common.sampling.decoder_prompt = *std::move(ids);
    return std::nullopt;
  }

  static ApiError field_error(const char* field, const Status& status) {
    return {400, fmt::format("'{}': {}", field, message(status)), field, ""};
  }

  std::optional<ApiError> tokenize(std::vector<std::vector<int32_t>>& prompts,
                                   const std::function<bool()>& is_unwanted) {
    const SamplingOptions& sampling = request_.common.sampling;
    if (auto error = set_decoder_prompt()) return error;
    if (!request_.suffix.empty() && !model_->infill)
      return ApiError{400, "'suffix': the model has no tokens for a text with a gap", "suffix",
                      "unsupported_parameter"};
    for (const Prompt& given : request_.prompts) {
      Prompt prompt =
          request_.suffix.empty()
              ? given
              : fill_middle_prompt(*model_->infill, std::get<std::string>(given), request_.suffix);
      if (has_pictures())
        prompt = vision::with_shown_marks(std::get<std::string>(given), (*model_->pictures)->marks);
      auto ids = prompt_ids(*model_, prompt, request_.add_special_tokens, sampling, "prompt",
                            context_->budget, is_unwanted);
      if (auto* error = std::get_if<ApiError>(&ids)) return std::move(*error);
      prompts.push_back(std::get<std::vector<int32_t>>(std::move(ids)));
      if (has_pictures())
        if (auto error = place_in_prompt(*context_, *model_, "prompt", prompts.back(), pictures_))
          return error;
      const std::string& source = request_.translation.source;
      if (!source.empty())
        if (const Status set = model_->decoder_prompts.set_source(source, prompts.back());
            !set.ok())
          return field_error("src_lang", set);
      const auto room = check_prompt(*model_, prompts.back(), sampling, "prompt");
      if (const auto* error = std::get_if<ApiError>(&room)) return *error;
    }
    for (const auto& ids : prompts) num_prompt_tokens_ += std::ssize(ids);
    const char* const param = request_.common.prompt_log_probs ? "prompt_logprobs" : "logprobs";
    return check_prompt_log_probs(*model_, sampling, num_prompt_tokens_, param);
  }

  size_t prompt_of(size_t choice) const {
    return choice / static_cast<size_t>(request_.common.sampling.n);
  }

  std::string prompt_text(size_t index) const {
    const Prompt& prompt = request_.prompts[index];
    if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
    return model_->tokenizer->decode(std::get<std::vector<int32_t>>(prompt), false);
  }

  void cancel() {
    for (const auto& generation : generations_) generation->cancel();
  }

  void fail(const ApiError& error) {
    if (std::exchange(ended_, true)) return;
    cancel();
    send_failure(exchange_, begun_, error);
  }

  void take(size_t index, Piece piece) {
    if (ended_) return;
    const auto self = shared_from_this();  // cancelled generations drop their references
    if (!piece.status.ok()) {
      fail(api_error(piece.status));
      return;
    }
    const size_t prompt = prompt_of(index);
    PromptEcho& echo = echoes_[prompt];
    const bool brings_scores = piece.index == 0 && !echo.is_scored;
    if (!brings_scores && !echo.is_scored && scores_echo()) {
      held_.emplace_back(index, std::move(piece));
      return;
    }
    if (brings_scores) take_prompt(echo, std::move(piece.prompt));
    take_ready(index, std::move(piece));
    if (!brings_scores) return;
    // Pieces held back behind the prompt's scores; none is held again.
    for (auto& [held_index, held] : std::exchange(held_, {})) take(held_index, std::move(held));
  }

  // Whether the answer begins with the prompt and its log-probabilities.
  bool scores_echo() const { return request_.echo && request_.common.sampling.log_probs; }

  // Sets text offsets. If the tokens' text differs from the echoed one (special tokens in front, or
  // cut), both are aligned at their ends.
  void take_prompt(PromptEcho& echo, std::vector<ScoredToken> tokens) {
    echo.is_scored = true;
    text::Detokenizer detokenizer(model_->tokenizer, /*skip_special_tokens=*/false);
    int64_t offset = 0;
    for (ScoredToken& token : tokens) {
      token.text_offset = offset;
      offset += num_characters(detokenizer.push(token.id));
    }
    offset += num_characters(detokenizer.finish());
    for (ScoredToken& token : tokens)
      token.text_offset = std::clamp<int64_t>(token.text_offset + echo.num_characters - offset, 0,
                                              echo.num_characters);
    echo.tokens = std::move(tokens);
  }

  void take_ready(size_t index, Piece piece) {
    if (request_.prompt_only) {
      piece.text.clear(), piece.log_probs.clear(), piece.token_ids.clear();
      piece.counts.generated = 0;
      if (piece.done) piece.finish_reason = "length", piece.stop_reason = nullptr;
    }
    for (ScoredToken& token : piece.log_probs)
      token.text_offset += echoes_[prompt_of(index)].num_characters;
    TextChoice& choice = choices_[index];
    choice.counts = piece.counts;
    if (piece.done) {
      choice.finish_reason = piece.finish_reason;
      choice.stop_reason = piece.stop_reason;
      --num_running_;
    }
    if (request_.common.stream) {
      stream(index, piece);
    } else {
      if (!exchange_->hold(num_held_ += held_bytes(piece)))
        return fail({503, std::string(message(context_->budget->refusal())), "", ""});
      choice.text += piece.text;
      std::move(piece.log_probs.begin(), piece.log_probs.end(),
                std::back_inserter(choice.log_probs));
      choice.token_ids.insert(choice.token_ids.end(), piece.token_ids.begin(),
                              piece.token_ids.end());
      if (num_running_ == 0) answer();
    }
  }

  json::object choice_object(size_t index, std::string text,
                             const std::vector<ScoredToken>& log_probs,
                             const std::vector<int32_t>& token_ids) const {
    const TextChoice& c = choices_[index];
    json::value scores;
    if (request_.common.sampling.log_probs) {
      scores = completion_log_probs(*model_->tokenizer, log_probs,
                                    request_.common.sampling.tokens_as_ids);
    }
    json::object choice = {{"index", index},
                           {"text", std::move(text)},
                           {"logprobs", std::move(scores)},
                           {"finish_reason", c.finish_reason},
                           {"stop_reason", c.stop_reason}};
    const size_t prompt = prompt_of(index);
    if (const auto num_top = request_.common.prompt_log_probs)
      choice["prompt_logprobs"] = prompt_log_probs(*model_->tokenizer, echoes_[prompt].tokens,
                                                   static_cast<size_t>(*num_top));
    if (request_.common.return_token_ids) {
      choice["token_ids"] = ids_or_null(request_.common, token_ids);
      const bool has_ids = !std::holds_alternative<PromptRowsPtr>(request_.prompts[prompt]);
      choice["prompt_token_ids"] =
          has_ids ? ids_or_null(request_.common, prompts_[prompt]) : json::value();
    }
    return choice;
  }

  json::object usage() const {
    std::vector<TokenCounts> counts;
    for (const TextChoice& c : choices_) counts.push_back(c.counts);
    return usage_object(num_prompt_tokens_, counts,
                        static_cast<size_t>(request_.common.sampling.n));
  }

  void stream(size_t index, Piece& piece) {
    begin(prompt_of(index));
    const bool has_ids = request_.common.return_token_ids && !piece.token_ids.empty();
    if (!piece.text.empty() || !piece.log_probs.empty() || has_ids || piece.done) {
      json::object more;
      if (request_.common.continuous_usage_stats) {
        more["usage"] = usage();
      } else if (request_.common.include_usage) {
        more["usage"] = nullptr;
      }
      write_choice(choice_object(index, std::move(piece.text), piece.log_probs, piece.token_ids),
                   more);
    }
    if (num_running_ > 0) return;
    if (request_.common.include_usage)
      exchange_->write(events_->event("", json::object{{"usage", usage()}}));
    exchange_->write(kSseDone);
    exchange_->end();
    ended_ = true;
  }

  void begin(size_t prompt) {
    if (!std::exchange(begun_, true)) begin_events(exchange_, warnings(request_.common));
    PromptEcho& echo = echoes_[prompt];
    if (!request_.echo || std::exchange(echo.is_sent, true)) return;
    const auto tokens = echoed_tokens(echo);
    const auto n = static_cast<size_t>(request_.common.sampling.n);
    for (size_t i = prompt * n; i < (prompt + 1) * n; ++i) {
      json::object choice = choice_object(i, echo.text, tokens, {});
      choice["finish_reason"] = nullptr;
      choice["stop_reason"] = nullptr;
      write_choice(choice);
    }
  }

  void write_choice(const json::object& choice, const json::object& more = {}) {
    exchange_->write(events_->event(json_text(choice), more));
  }

  // With the likeliest tokens of `logprobs`, independent of `prompt_logprobs`.
  std::vector<ScoredToken> echoed_tokens(const PromptEcho& echo) const {
    if (!scores_echo()) return {};
    std::vector<ScoredToken> tokens = echo.tokens;
    const auto num_top = static_cast<size_t>(request_.common.sampling.num_top_log_probs);
    for (ScoredToken& token : tokens) token.top.resize(std::min(token.top.size(), num_top));
    return tokens;
  }

  void answer() {
    ended_ = true;
    size_t num_scored = 0;
    for (const PromptEcho& echo : echoes_) num_scored += echo.tokens.size();
    for (const TextChoice& choice : choices_) num_scored += choice.log_probs.size();
    send_made(
        *context_, exchange_, num_scored <= kQuickLogProbs && num_held_ <= kQuickReplyBytes,
        [self = shared_from_this()] { return self->answer_text(); },
        [self = shared_from_this()] { return warnings(self->request_.common); });
  }

  CountedText answer_text() const {
    CountedText body(context_->budget);
    ChoiceList choices(body, envelope_.make("text_completion"));
    for (size_t i = 0; i < choices_.size(); ++i) {
      const PromptEcho& echo = echoes_[prompt_of(i)];
      body.expect((2 * num_entries(echo.tokens) + num_entries(choices_[i].log_probs)) *
                  kLogProbBytes);
      std::vector<ScoredToken> tokens = echoed_tokens(echo);
      tokens.insert(tokens.end(), choices_[i].log_probs.begin(), choices_[i].log_probs.end());
      choices.add(choice_object(i, echo.text + choices_[i].text, tokens, choices_[i].token_ids));
    }
    choices.finish({{"usage", usage()}});
    return body;
  }

  ExchangePtr exchange_;
  LanguageModelPtr model_;
  const OpenAiContextPtr context_;
  CompletionRequest request_;
  PromptPictures pictures_;
  Envelope envelope_;
  std::optional<ChunkEvents> events_;  // of a stream
  std::vector<std::vector<int32_t>> prompts_;
  std::vector<std::shared_ptr<Generation>> generations_;  // one for each prompt
  std::vector<TextChoice> choices_;                       // n for each prompt
  std::vector<PromptEcho> echoes_;                        // one for each prompt
  std::vector<std::pair<size_t, Piece>> held_;            // by choice, until its prompt is scored
  int64_t num_prompt_tokens_ = 0;
  size_t num_running_ = 0;
  size_t num_held_ = 0;  // bytes of an answer that is sent whole
  bool begun_ = false;
  bool ended_ = false;
};

using CompletionPtr = std::shared_ptr<Completion>;

std::variant<CompletionPtr, ApiError> read_completion(const OpenAiContextPtr& context,
                                                      const ExchangePtr& exchange,
                                                      const ContextRules& rules, Lane lane) {
  auto accepted = accept_body(*context, exchange, parse_completion_request);
  if (auto* error = std::get_if<ApiError>(&accepted)) return std::move(*error);
  auto& [model, request] = std::get<0>(accepted);
  request.common.sampling.context = rules;
  auto completion =
      std::make_shared<Completion>(exchange, std::move(model), context, std::move(request));
  if (auto error = completion->read_prompts(lane)) return *std::move(error);
  return completion;
}

}  // namespace

void handle_completion(const OpenAiContextPtr& context, const ExchangePtr& exchange,
                       const ContextRules& rules) {
  read_and_start(context, exchange,
                 [=](Lane lane) { return read_completion(context, exchange, rules, lane); });
}

}  // namespace nereid::front
