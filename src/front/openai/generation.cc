// Token ids to text with stops and finish reasons; see generation.h.
#include "front/openai/generation.h"

#include <algorithm>
#include <utility>

#include "front/trace/exchange_trace.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxTextBytes = 4 << 20;  // of a text that is only counted, or cut

// Elements [begin, end) of the comma list at `index`; the whole text when it has fewer.
std::string_view part_of(std::string_view list, size_t index) {
  for (; index > 0; --index) {
    const size_t comma = list.find(',');
    if (comma == std::string_view::npos) return list;
    list.remove_prefix(comma + 1);
  }
  return list.substr(0, list.find(','));
}

// The error for a text too long to be tokenised.
std::optional<ApiError> check_bytes(const LanguageModel& model, size_t num_bytes, bool is_cut,
                                    std::string_view param) {
  // Normalisation composes at most three characters into one of the same length.
  constexpr size_t kMaxComposed = 3;
  const int64_t most = model.encoder_positions > 0 ? model.encoder_positions : model.max_seq_len;
  const size_t fitting = static_cast<size_t>(most) * model.max_token_bytes * kMaxComposed;
  if (num_bytes <= fitting || (is_cut && num_bytes <= kMaxTextBytes)) return std::nullopt;
  if (!is_cut)
    return ApiError{400,
                    fmt::format("This model's maximum context length is {} tokens, which is less "
                                "than {} bytes, but the prompt has {} bytes",
                                most, fitting + 1, num_bytes),
                    std::string(param), "context_length_exceeded"};
  return ApiError{400,
                  fmt::format("'{}': a text of {} bytes is not tokenised, at most {} are allowed",
                              param, num_bytes, std::max(fitting, kMaxTextBytes)),
                  std::string(param), ""};
}

}  // namespace

size_t held_bytes(const Piece& piece) {
  size_t bytes = piece.text.size() + piece.token_ids.size() * sizeof(int32_t);
  for (const ScoredToken& token : piece.log_probs)
    bytes += sizeof token + token.top.size() * sizeof token.top[0];
  return bytes;
}

int64_t num_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

std::variant<std::vector<int32_t>, ApiError> prompt_ids(
    const LanguageModel& model, const Prompt& prompt, bool add_special_tokens,
    const SamplingOptions& sampling, std::string_view param,
    const std::shared_ptr<ByteBudget>& budget, std::function<bool()> is_unwanted) {
  std::vector<int32_t> ids;
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    const bool is_cut = sampling.max_prompt_tokens.has_value();
    if (auto error = check_bytes(model, text->size(), is_cut, param)) return *std::move(error);
    BudgetShare scratch(budget);
    if (const Status room = scratch.reserve(text->size() * text::Tokenizer::kScratchPerByte);
        !room.ok())
      return api_error(room);
    auto encoded = model.tokenizer->encode(
        *text, {.add_special_tokens = add_special_tokens, .is_unwanted = std::move(is_unwanted)});
    if (!encoded.ok())
      return ApiError{400, std::string(message(encoded.status())), std::string(param), ""};
    ids = *std::move(encoded);
  } else if (const auto* rows = std::get_if<PromptRowsPtr>(&prompt)) {
    ids.resize(static_cast<size_t>((*rows)->size()));
  } else {
    ids = std::get<std::vector<int32_t>>(prompt);
  }
  const auto size = static_cast<int64_t>(ids.size());
  int64_t kept = sampling.max_prompt_tokens.value_or(size);
  if (kept == kFitContext) {
    const int64_t room = sampling.context.clips_max_tokens ? 1 : sampling.max_tokens.value_or(1);
    kept = std::max<int64_t>(1, max_seq_len(model, sampling) - room);
    if (model.encoder_positions > 0) kept = model.encoder_positions;
  }
  ids.erase(ids.begin(), ids.end() - std::min(size, kept));
  return ids;
}

int64_t max_seq_len(const LanguageModel& model, const SamplingOptions& sampling) {
  return std::min(model.max_seq_len, sampling.context.max_seq_len.value_or(model.max_seq_len));
}

int64_t context_tokens(const LanguageModel& model, const SamplingOptions& sampling,
                       int64_t length) {
  if (model.encoder_positions == 0) return length;
  const std::vector<int32_t>& usual = model.decoder_prompts.usual();
  return std::max<int64_t>(
      1, std::ssize(sampling.decoder_prompt.empty() ? usual : sampling.decoder_prompt));
}

int64_t wanted_tokens(const LanguageModel& model, const SamplingOptions& sampling, int64_t length) {
  const int64_t room = max_seq_len(model, sampling) - context_tokens(model, sampling, length);
  const int64_t wanted = sampling.max_tokens.value_or(model.default_max_tokens_within(room));
  return sampling.context.clips_max_tokens ? std::min(wanted, room) : wanted;
}

std::optional<ApiError> check_ids(const LanguageModel& model, const std::vector<int32_t>& ids,
                                  std::string_view param) {
  const int32_t vocab = model.tokenizer->vocab_size();
  for (const int32_t id : ids) {
    if (id < vocab) continue;
    return ApiError{400, fmt::format("token id {} is not in [0, {})", id, vocab),
                    std::string(param), ""};
  }
  return std::nullopt;
}

std::variant<int64_t, ApiError> check_prompt(const LanguageModel& model,
                                             const std::vector<int32_t>& prompt,
                                             const SamplingOptions& sampling,
                                             std::string_view param) {
  const auto size = static_cast<int64_t>(prompt.size());
  if (model.encoder_positions > 0 && size > model.encoder_positions)
    return ApiError{400,
                    fmt::format("This model's encoder takes at most {} tokens, but the prompt has "
                                "{} tokens",
                                model.encoder_positions, size),
                    std::string(param), "context_length_exceeded"};
  const int64_t length = context_tokens(model, sampling, size);
  const int64_t most = max_seq_len(model, sampling), room = most - length;
  if (room < 1) {
    return ApiError{400,
                    fmt::format("This model's maximum context length is {} tokens, but the prompt "
                                "has {} tokens and needs room for at least 1 more",
                                most, length),
                    std::string(param), "context_length_exceeded"};
  }
  const int64_t wanted = wanted_tokens(model, sampling, size);
  if (wanted > room) {
    return ApiError{400,
                    fmt::format("This model's maximum context length is {} tokens, but {} were "
                                "requested: {} in the prompt and {} in max_tokens",
                                most, length + wanted, length, wanted),
                    std::string(param), "context_length_exceeded"};
  }
  if (auto error = check_ids(model, prompt, param)) return *std::move(error);
  if (auto error = check_ids(model, sampling.allowed_token_ids, "allowed_token_ids"))
    return *std::move(error);
  const int32_t vocab = model.tokenizer->vocab_size();
  for (const auto& [id, bias] : sampling.logit_bias) {
    if (id >= vocab) {
      return ApiError{400, fmt::format("'logit_bias': token id {} is not in [0, {})", id, vocab),
                      "logit_bias", ""};
    }
  }
  return wanted;
}

std::optional<ApiError> check_prompt_log_probs(const LanguageModel& model,
                                               const SamplingOptions& sampling,
                                               int64_t num_prompt_tokens, std::string_view param) {
  const auto num_top = sampling.num_prompt_log_probs;
  if (num_top && model.encoder_positions > 0)
    return ApiError{
        400,
        fmt::format("'{}': the prompt is the input of the model's encoder, whose tokens "
                    "have no log-probabilities",
                    param),
        std::string(param), "unsupported_parameter"};
  if (!num_top || num_prompt_tokens * (1 + *num_top) <= kMaxPromptLogProbs) return std::nullopt;
  return ApiError{400,
                  fmt::format("'{}': {} entries for each of {} prompt tokens are more than the {} "
                              "that are allowed",
                              param, 1 + *num_top, num_prompt_tokens, kMaxPromptLogProbs),
                  std::string(param), ""};
}

json::object usage_object(int64_t prompt_tokens, const std::vector<TokenCounts>& counts, size_t n,
                          std::optional<int64_t> reasoning_tokens) {
  TokenCounts sum;
  for (size_t i = 0; i < counts.size(); ++i) {
    sum.generated += counts[i].generated;
    sum.drafts += counts[i].drafts;
    sum.accepted_drafts += counts[i].accepted_drafts;
    if (i % n > 0) continue;
    // The smallest count: later sequences of a prompt reuse what the first one computed.
    std::optional<int64_t> least;
    for (size_t j = i; j < i + n; ++j)
      if (counts[j].generated > 0)
        least = std::min(least.value_or(counts[j].cached), counts[j].cached);
    sum.cached += least.value_or(0);
  }
  json::object out = {{"prompt_tokens", prompt_tokens},
                      {"total_tokens", prompt_tokens + sum.generated},
                      {"completion_tokens", sum.generated},
                      {"prompt_tokens_details", json::object{{"cached_tokens", sum.cached}}}};
  json::object details;
  if (reasoning_tokens) details["reasoning_tokens"] = *reasoning_tokens;
  if (sum.drafts > 0) {
    details["accepted_prediction_tokens"] = sum.accepted_drafts;
    details["rejected_prediction_tokens"] = sum.drafts - sum.accepted_drafts;
  }
  if (!details.empty()) out["completion_tokens_details"] = std::move(details);
  return out;
}

Generation::Generation(std::shared_ptr<const LanguageModel> model, const SamplingOptions& sampling,
                       OnPiece on_piece)
    : model_(std::move(model)), sampling_(sampling), on_piece_(std::move(on_piece)) {
  for (int64_t i = 0; i < sampling.n; ++i) {
    sequences_.emplace_back(text::Detokenizer(model_->tokenizer, sampling.skip_special_tokens,
                                              /*continues=*/true),
                            text::StopStrings(sampling.stop));
  }
  num_open_ = sequences_.size();
}

StatusOr<std::shared_ptr<Generation>> Generation::start(
    TRITONSERVER_Server* server, Tracer& tracer, std::shared_ptr<const LanguageModel> model,
    ExchangePtr exchange, std::vector<int32_t> prompt, const SamplingOptions& sampling,
    OnPiece on_piece, const PromptInputs& more) {
  if (sampling.n > 1 && !sampling.use_beam_search && !model->decoupled) {
    return unsupported("'n': {} needs a model '{}' that is deployed using decoupled mode",
                       sampling.n, model->engine_name);
  }
  std::shared_ptr<Generation> self(new Generation(std::move(model), sampling, std::move(on_piece)));
  self->num_prompt_tokens_ = prompt.size();
  self->exchange_ = exchange;
  self->permit_ = exchange->request().permit;
  if (sampling.num_prompt_log_probs) self->prompt_ = prompt;
  self->streaming_ = self->model_->decoupled && sampling.can_stream();
  self->max_tokens_ = wanted_tokens(*self->model_, sampling, std::ssize(prompt));
  ASSIGN_OR_RETURN(
      InferenceSpec spec,
      engine_request(*self->model_, prompt, more, self->max_tokens_, sampling, self->streaming_));
  spec.tenant = exchange->request().tenant;
  spec.trace = trace_exchange(tracer, spec.model, *exchange);
  auto on_reply = [self, exchange](InferenceReply reply) {
    auto shared = std::make_shared<const InferenceReply>(std::move(reply));
    exchange->deliver([self, shared] { self->take(*shared); });
  };
  ASSIGN_OR_RETURN(self->call_, InferenceCall::start(server, std::move(spec), std::move(on_reply)));
  return self;
}

void Generation::cancel() {
  if (std::exchange(done_, true)) return;
  on_piece_ = nullptr;
  end_call();
}

// Cancels later, on the strand: the core may answer from inside the call, and this thread may
// be inside deliver().
void Generation::end_call() {
  exchange_->post([call = call_] { call->cancel(); });
}

// Rows of a reply: the beams of a search, else the sequence in `sequence_index`. Without streaming
// a row repeats the prompt if the engine cannot omit it.
StatusOr<std::vector<Generation::Row>> Generation::rows_of(const InferenceReply& reply) const {
  std::vector<Row> rows;
  const Tensor* ids = reply.output("output_ids");
  const Tensor* lengths = reply.output("sequence_length");
  if (ids == nullptr || lengths == nullptr) return rows;
  ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, elements<int32_t>(*ids));
  ASSIGN_OR_RETURN(const std::vector<int32_t> length, elements<int32_t>(*lengths));
  size_t first = 0;
  if (const Tensor* index = reply.output("sequence_index")) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> value, elements<int32_t>(*index));
    if (value.size() == 1 && value[0] >= 0) first = static_cast<size_t>(value[0]);
  }
  if (length.empty() || tokens.size() % length.size() != 0 ||
      first + length.size() > sequences_.size()) {
    return internal_error("model '{}' sent {} sequences from index {}, {} were asked for",
                          model_->engine_name, length.size(), first, sequences_.size());
  }
  const size_t width = tokens.size() / length.size();
  const bool has_prompt = !streaming_ && model_->repeats_prompt;
  for (size_t r = 0; r < length.size(); ++r) {
    const size_t count = std::clamp<int64_t>(length[r], 0, static_cast<int64_t>(width));
    const size_t skip = has_prompt ? std::min(num_prompt_tokens_, count) : 0;
    const auto begin = tokens.begin() + static_cast<ptrdiff_t>(r * width);
    Row row;
    row.sequence = first + r;
    for (auto it = begin + static_cast<ptrdiff_t>(skip);
         it != begin + static_cast<ptrdiff_t>(count); ++it) {
      row.tokens.push_back({*it, 0, {}, 0});
    }
    rows.push_back(std::move(row));
  }
  if (sampling_.log_probs) RETURN_IF_ERROR(add_log_probs(reply, rows));
  return rows;
}

Status Generation::add_log_probs(const InferenceReply& reply, std::vector<Row>& rows) const {
  const Tensor* scores = reply.output("output_log_probs");
  if (scores == nullptr) return ok();  // none, as after a cancel
  ASSIGN_OR_RETURN(const std::vector<float> values, elements<float>(*scores));
  const size_t width = values.size() / rows.size();
  const Tensor* top_scores = reply.output("top_log_probs");
  const Tensor* top_ids = reply.output("top_log_prob_ids");
  std::vector<float> tops;
  std::vector<int32_t> ids;
  if (top_scores != nullptr && top_ids != nullptr) {
    ASSIGN_OR_RETURN(tops, elements<float>(*top_scores));
    ASSIGN_OR_RETURN(ids, elements<int32_t>(*top_ids));
    if (top_ids->shape.empty() || ids.size() != tops.size()) {
      return internal_error("model '{}': top_log_probs and their ids differ", model_->engine_name);
    }
  }
  const size_t depth = ids.empty() ? 0 : static_cast<size_t>(top_ids->shape.back());
  const size_t per_row = ids.size() / rows.size();
  for (size_t r = 0; r < rows.size(); ++r) {
    // In a stream the scores are those of all tokens so far, the lists those of new tokens.
    const size_t before = streaming_ ? sequences_[rows[r].sequence].num_received : 0;
    for (size_t t = 0; t < rows[r].tokens.size(); ++t) {
      ScoredToken& token = rows[r].tokens[t];
      if (before + t < width) token.log_prob = values[r * width + before + t];
      for (size_t k = 0; k < depth && (t + 1) * depth <= per_row; ++k) {
        const size_t at = r * per_row + t * depth + k;
        if (ids[at] >= 0) token.top.emplace_back(ids[at], tops[at]);
      }
    }
  }
  return ok();
}

StatusOr<std::vector<ScoredToken>> Generation::scored_prompt(const InferenceReply& reply) const {
  std::vector<ScoredToken> out;
  const Tensor* scores = reply.output("prompt_log_probs");
  const Tensor* ranks = reply.output("prompt_log_prob_ranks");
  if (prompt_.empty() || scores == nullptr || ranks == nullptr) return out;
  ASSIGN_OR_RETURN(const std::vector<float> values, elements<float>(*scores));
  ASSIGN_OR_RETURN(const std::vector<int32_t> places, elements<int32_t>(*ranks));
  std::vector<float> tops;
  std::vector<int32_t> ids;
  const Tensor* top_scores = reply.output("prompt_top_log_probs");
  const Tensor* top_ids = reply.output("prompt_top_log_prob_ids");
  if (top_scores != nullptr && top_ids != nullptr) {
    ASSIGN_OR_RETURN(tops, elements<float>(*top_scores));
    ASSIGN_OR_RETURN(ids, elements<int32_t>(*top_ids));
  }
  const size_t count = prompt_.size() - 1;
  const size_t depth = count == 0 ? 0 : ids.size() / count;
  if (values.size() != count || places.size() != count || ids.size() != count * depth ||
      tops.size() != ids.size())
    return internal_error("model '{}' sent {} log-probabilities for a prompt of {} tokens",
                          model_->engine_name, values.size(), prompt_.size());
  out.push_back({.id = prompt_[0], .is_first = true});
  for (size_t i = 0; i < count; ++i) {
    ScoredToken token{.id = prompt_[i + 1], .log_prob = values[i], .rank = places[i]};
    for (size_t k = i * depth; k < (i + 1) * depth; ++k) token.top.emplace_back(ids[k], tops[k]);
    out.push_back(std::move(token));
  }
  return out;
}

bool Generation::push_token(Sequence& sequence, ScoredToken token, Piece& piece) {
  ++sequence.counts.generated;
  piece.token_ids.push_back(token.id);
  const auto& stop_ids = sampling_.stop_token_ids;
  const auto& eos_ids = model_->eos_ids;
  const bool is_stop = std::find(stop_ids.begin(), stop_ids.end(), token.id) != stop_ids.end();
  const bool is_eos =
      !sampling_.ignore_eos && std::find(eos_ids.begin(), eos_ids.end(), token.id) != eos_ids.end();
  const bool ends = (is_stop || is_eos) && sequence.counts.generated > sampling_.min_tokens;
  if (ends) {
    piece.finish_reason = "stop";
    if (is_stop) piece.stop_reason = token.id;
    if (!is_stop || !sampling_.include_stop_text) return true;
  }
  const std::string text = sampling_.detokenize ? sequence.detokenizer.push(token.id) : "";
  if (sampling_.log_probs) {
    token.text_offset = sequence.num_characters;
    piece.log_probs.push_back(token);
  }
  sequence.num_characters += num_characters(text);
  const text::StopStrings::Out out = sequence.stops.push(text, false);
  piece.text += out.text;
  if (ends || !out.stopped) return ends;
  const std::string& matched = sampling_.stop[out.which];
  if (sampling_.include_stop_text) piece.text += matched;
  piece.stop_reason = matched;
  piece.finish_reason = "stop";
  return true;
}

void Generation::take(const InferenceReply& reply) {
  if (done_) return;
  if (!reply.status.ok()) return fail(reply.status, reply.final);
  auto rows = rows_of(reply);
  if (!rows.ok()) return fail(rows.status(), reply.final);
  auto prompt = scored_prompt(reply);
  if (!prompt.ok()) return fail(prompt.status(), reply.final);
  if (!prompt->empty()) prompt_.clear();
  const std::string* reasons = reply.string_parameter("nereid_finish_reason");
  for (size_t r = 0; r < rows->size() && !done_; ++r) {
    Row& row = (*rows)[r];
    Sequence& sequence = sequences_[row.sequence];
    sequence.num_received += row.tokens.size();
    if (permit_) permit_->charge(std::ssize(row.tokens));
    sequence.counts.cached = reply.int_parameter("nereid_cached_tokens");
    sequence.counts.drafts = reply.int_parameter("nereid_draft_tokens");
    sequence.counts.accepted_drafts = reply.int_parameter("nereid_accepted_draft_tokens");
    if (sequence.done) continue;
    Piece piece;
    piece.index = row.sequence;
    if (row.sequence == 0) piece.prompt = std::exchange(*prompt, {});
    bool ended = false;
    for (auto it = row.tokens.begin(); it != row.tokens.end() && !ended; ++it) {
      ended = push_token(sequence, std::move(*it), piece);
    }
    if (ended || reasons != nullptr || reply.final) {
      finish(sequence, reasons == nullptr ? "" : std::string(part_of(*reasons, r)),
             std::move(piece));
    } else {
      piece.counts = sequence.counts;
      emit(std::move(piece));
    }
  }
  if (done_) {
    // All sequences have ended here: the engine's call is cancelled.
    if (!reply.final) end_call();
    return;
  }
  if (reply.final) end_open_sequences();
}

// Ends sequences that the engine finished without an end.
void Generation::end_open_sequences() {
  for (size_t i = 0; i < sequences_.size() && !done_; ++i) {
    if (sequences_[i].done) continue;
    Piece piece;
    piece.index = i;
    finish(sequences_[i], "", std::move(piece));
  }
}

void Generation::finish(Sequence& sequence, const std::string& engine_reason, Piece piece) {
  piece.done = true;
  if (sampling_.detokenize && !piece.stop_reason.is_string()) {
    // No stop string ended it, so held-back text is released.
    piece.text += sequence.stops.push(sequence.detokenizer.finish(), true).text;
  }
  if (piece.finish_reason.empty()) {
    if (engine_reason.empty()) {
      piece.finish_reason = sequence.counts.generated < max_tokens_ ? "stop" : "length";
    } else if (engine_reason == "end_id") {
      ++sequence.counts.generated;  // the end token is generated but not part of the output
      if (!model_->eos_ids.empty()) piece.token_ids.push_back(model_->eos_ids[0]);
      piece.finish_reason = "stop";
    } else {
      piece.finish_reason = engine_reason == "stop_words" ? "stop" : engine_reason;
    }
  }
  piece.counts = sequence.counts;
  sequence.done = true;
  --num_open_;
  emit(std::move(piece));
}

void Generation::fail(const Status& status, bool is_final) {
  Piece piece;
  piece.status = status;
  piece.done = true;
  num_open_ = 0;
  emit(std::move(piece));
  if (!is_final) end_call();
}

void Generation::emit(Piece piece) {
  if (num_open_ > 0) {
    on_piece_(std::move(piece));
    return;
  }
  done_ = true;
  // The callback refers to the owner of this generation.
  const OnPiece on_piece = std::exchange(on_piece_, nullptr);
  on_piece(std::move(piece));
}

}  // namespace nereid::front
