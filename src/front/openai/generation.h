// One or several continuations of a prompt: token ids in, pieces of text out, through
// one inference call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "front/bridge/inference_call.h"
#include "front/http/message.h"
#include "front/openai/engine_request.h"
#include "front/openai/language_model.h"
#include "front/openai/log_probs.h"
#include "front/openai/requests/requests.h"
#include "front/trace/tracer.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"

namespace nereid::front {

// Token counts of one sequence so far.
struct TokenCounts {
  int64_t generated = 0;        // end and stop tokens included
  int64_t cached = 0;           // prompt tokens found in the prefix cache
  int64_t drafts = 0;           // draft tokens tested
  int64_t accepted_drafts = 0;  // draft tokens accepted
};

// New output of one of the n sequences since its last piece.
struct Piece {
  size_t index = 0;
  std::string text;
  std::vector<ScoredToken> log_probs;  // of the new tokens; their text may come later
  // The whole prompt's, with the first piece of sequence 0, if requested.
  std::vector<ScoredToken> prompt;
  std::vector<int32_t> token_ids;  // of all new tokens, end and stop tokens included
  TokenCounts counts;
  bool done = false;          // the last piece of this sequence
  Status status;              // not OK: the whole generation failed; done is set
  std::string finish_reason;  // stop | length | cancelled, when done
  json::value stop_reason;    // matched stop string or stop token id, else null
};

// Memory that a piece adds to an answer that is sent whole.
size_t held_bytes(const Piece& piece);

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // Called inside deliver(). Each sequence has exactly one piece with done = true, its last; a
  // failure is one such piece for all.
  using OnPiece = std::function<void(Piece)>;

  // `prompt` must fit the model (see check_prompt); rows of `more` are as many as its tokens.
  // Traced when `tracer` samples it. On an error nothing was started and
  // `on_piece` is never called.
  static StatusOr<std::shared_ptr<Generation>> start(
      TRITONSERVER_Server* server, Tracer& tracer, std::shared_ptr<const LanguageModel> model,
      ExchangePtr exchange, std::vector<int32_t> prompt, const SamplingOptions& sampling,
      OnPiece on_piece, const PromptInputs& more = {});

  // On the strand, or inside on_piece. No piece follows.
  void cancel();

 private:
  Generation(std::shared_ptr<const LanguageModel> model, const SamplingOptions& sampling,
             OnPiece on_piece);
  struct Sequence {
    Sequence(text::Detokenizer d, text::StopStrings s)
        : detokenizer(std::move(d)), stops(std::move(s)) {}
    text::Detokenizer detokenizer;
    text::StopStrings stops;
    TokenCounts counts;
    int64_t num_characters = 0;  // of text, held-back and cut text included
    size_t num_received = 0;     // tokens received from the engine
    bool done = false;
  };
  struct Row {
    size_t sequence = 0;
    std::vector<ScoredToken> tokens;
  };
  void take(const InferenceReply& reply);
  StatusOr<std::vector<Row>> rows_of(const InferenceReply& reply) const;
  // All tokens of the prompt, when the reply has their scores.
  StatusOr<std::vector<ScoredToken>> scored_prompt(const InferenceReply& reply) const;
  Status add_log_probs(const InferenceReply& reply, std::vector<Row>& rows) const;
  // True when the token ends the text.
  bool push_token(Sequence& sequence, ScoredToken token, Piece& piece);
  void finish(Sequence& sequence, const std::string& engine_reason, Piece piece);
  void end_open_sequences();
  void fail(const Status& status, bool is_final);
  void emit(Piece piece);
  void end_call();

  std::shared_ptr<const LanguageModel> model_;
  const SamplingOptions sampling_;
  OnPiece on_piece_;
  std::shared_ptr<InferenceCall> call_;
  ExchangePtr exchange_;
  KeyUse::PermitPtr permit_;  // charged for the tokens; or null
  std::vector<Sequence> sequences_;
  size_t num_open_ = 0;
  size_t num_prompt_tokens_ = 0;
  std::vector<int32_t> prompt_;  // until its scores are received
  int64_t max_tokens_ = 0;
  bool streaming_ = false;
  bool done_ = false;
};

// Number of characters of a UTF-8 text.
int64_t num_characters(std::string_view text);

// `counts`: of the n sequences of each prompt, in order.
json::object usage_object(int64_t prompt_tokens, const std::vector<TokenCounts>& counts, size_t n,
                          std::optional<int64_t> reasoning_tokens = std::nullopt);

// The token ids, the last ones that the sampling's `max_prompt_tokens` lets it keep, of the prompt
// that the field `param` holds, zeros for rows. A 400 with the numbers for a text of so many bytes
// that all of it cannot fit the model whatever its tokens are, or that is too long to be cut: it is
// not tokenised. A 503 where the budget has no room for what that takes meanwhile.
std::variant<std::vector<int32_t>, ApiError> prompt_ids(
    const LanguageModel& model, const Prompt& prompt, bool add_special_tokens,
    const SamplingOptions& sampling, std::string_view param,
    const std::shared_ptr<ByteBudget>& budget, std::function<bool()> is_unwanted = {});

// Most prompt and output tokens of a request.
int64_t max_seq_len(const LanguageModel& model, const SamplingOptions& sampling);
// Tokens of the context that a prompt of `length` takes: of an encoder-decoder model the decoder's.
int64_t context_tokens(const LanguageModel& model, const SamplingOptions& sampling, int64_t length);
// New tokens behind a prompt of `length`, which leaves room for at least one.
int64_t wanted_tokens(const LanguageModel& model, const SamplingOptions& sampling, int64_t length);

// A 400 for an id outside of the model's vocabulary.
std::optional<ApiError> check_ids(const LanguageModel& model, const std::vector<int32_t>& ids,
                                  std::string_view param);

// A 400 for log-probabilities of more prompt tokens than an answer may have. `param`
// names their field.
std::optional<ApiError> check_prompt_log_probs(const LanguageModel& model,
                                               const SamplingOptions& sampling,
                                               int64_t num_prompt_tokens, std::string_view param);

// The room for output, or a 400 with the numbers when prompt or output does not fit. `param` names
// the prompt's field.
std::variant<int64_t, ApiError> check_prompt(const LanguageModel& model,
                                             const std::vector<int32_t>& prompt,
                                             const SamplingOptions& sampling,
                                             std::string_view param);

}  // namespace nereid::front
