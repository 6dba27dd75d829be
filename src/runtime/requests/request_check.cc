// Request checks, field by field in the order of the public header.
#include "runtime/requests/request_check.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "runtime/prompts/prompt_scorer.h"
#include "runtime/requests/encoder_check.h"
#include "runtime/requests/sample_params.h"

namespace nereid::runtime {
namespace {

Status check_range(std::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return ok();
  return invalid_argument("{}: {} is not in [{}, {}]", field, value, low, high);
}

Status check_not_negative(std::string_view field, std::optional<int32_t> value) {
  if (!value || *value >= 0) return ok();
  return invalid_argument("{}: {} is not allowed; at least 0", field, *value);
}

Status check_finite(std::string_view field, std::optional<float> value) {
  if (!value || std::isfinite(*value)) return ok();
  return invalid_argument("{}: {} is not allowed; a finite number", field, *value);
}

Status check_finite_not_negative(std::string_view field, std::optional<float> value) {
  if (!value || (*value >= 0 && std::isfinite(*value))) return ok();
  return invalid_argument("{}: {} is not allowed; a finite number, at least 0", field, *value);
}

// Range (0, 1].
Status check_share(std::string_view field, std::optional<float> value) {
  if (!value || (*value > 0 && *value <= 1)) return ok();
  return invalid_argument("{}: {} is not in (0, 1]", field, *value);
}

Status check_size(std::string_view field, size_t size, size_t most) {
  if (size <= most) return ok();
  return invalid_argument("{}: {} of them; at most {}", field, size, most);
}

template <class Ids>
Status check_ids(std::string_view field, const Ids& ids, int32_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= vocab_size)
      return invalid_argument("{}[{}]: {} is not in [0, {})", field, i, ids[i], vocab_size);
  return ok();
}

// Lists of words; a word is a list of tokens.
Status check_words(std::string_view field, const std::vector<std::vector<TokenId>>& words,
                   size_t most, size_t longest, int32_t vocab_size) {
  RETURN_IF_ERROR(check_size(field, words.size(), most));
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].empty() || words[i].size() > longest)
      return invalid_argument("{}[{}]: {} tokens; allowed are 1 to {}", field, i, words[i].size(),
                              longest);
    RETURN_IF_ERROR(check_ids(fmt::format("{}[{}]", field, i), words[i], vocab_size));
  }
  return ok();
}

// -infinity bans a token.
Status check_bias(std::string_view field, size_t index, float value) {
  if (value < INFINITY) return ok();
  return invalid_argument("{}[{}]: {} is not allowed; a finite number or -inf", field, index,
                          value);
}

int64_t logits_row_bytes(const RequestBounds& bounds) {
  return int64_t{bounds.vocab_size} * static_cast<int64_t>(sizeof(float));
}

Status check_sequences(const Request& r) {
  const SamplingConfig& s = r.sampling;
  const bool beams = s.beam_width > 1;
  if (s.num_return_sequences)
    RETURN_IF_ERROR(check_range("num_return_sequences", *s.num_return_sequences, 1,
                                beams ? s.beam_width : kMaxSequences));
  if (!s.best_of) return ok();
  if (beams)
    return invalid_argument("best_of: {} is not allowed with beam_width {}; only with 1",
                            *s.best_of, s.beam_width);
  const int32_t returned = s.num_return_sequences.value_or(1);
  RETURN_IF_ERROR(check_range("best_of", *s.best_of, returned, kMaxSequences));
  if (r.streaming && *s.best_of > returned)
    return invalid_argument(
        "best_of: {} with streaming; the {} returned are known only at the end, so only {} is "
        "allowed",
        *s.best_of, returned, returned);
  return ok();
}

Status check_sampling(const SamplingConfig& s) {
  if (s.top_k && *s.top_k < 0)
    return invalid_argument("top_k: {} is not allowed; at least 0 (0 = off)", *s.top_k);
  RETURN_IF_ERROR(check_share("top_p", s.top_p));
  RETURN_IF_ERROR(check_share("top_p_min", s.top_p_min));
  RETURN_IF_ERROR(check_share("top_p_decay", s.top_p_decay));
  RETURN_IF_ERROR(check_not_negative("top_p_reset_id", s.top_p_reset_id));
  if (s.min_p && !(*s.min_p >= 0 && *s.min_p <= 1))
    return invalid_argument("min_p: {} is not in [0, 1]", *s.min_p);
  RETURN_IF_ERROR(check_finite_not_negative("temperature", s.temperature));
  RETURN_IF_ERROR(check_not_negative("min_tokens", s.min_tokens));
  if (s.repetition_penalty && !(*s.repetition_penalty > 0 && std::isfinite(*s.repetition_penalty)))
    return invalid_argument("repetition_penalty: {} is not allowed; a finite number above 0",
                            *s.repetition_penalty);
  RETURN_IF_ERROR(check_finite("presence_penalty", s.presence_penalty));
  RETURN_IF_ERROR(check_finite("frequency_penalty", s.frequency_penalty));
  RETURN_IF_ERROR(check_not_negative("prompt_ignore_length", s.prompt_ignore_length));
  RETURN_IF_ERROR(check_not_negative("no_repeat_ngram_size", s.no_repeat_ngram_size));
  RETURN_IF_ERROR(check_range("order", static_cast<int64_t>(s.order), 0, 1));
  RETURN_IF_ERROR(check_finite_not_negative("length_penalty", s.length_penalty));
  RETURN_IF_ERROR(check_not_negative("early_stopping", s.early_stopping));
  return check_finite_not_negative("beam_search_diversity_rate", s.beam_search_diversity_rate);
}

Status check_output(const Request& r) {
  const OutputConfig& o = r.output;
  RETURN_IF_ERROR(check_range("num_top_log_probs", o.num_top_log_probs, 0, kMaxTopLogProbs));
  RETURN_IF_ERROR(check_range("log_probs_mode", static_cast<int64_t>(o.log_probs_mode), 0, 1));
  if (r.sampling.beam_width == 1) return ok();
  if (o.num_top_log_probs > 0)
    return invalid_argument(
        "num_top_log_probs: {} with beam_width {}; only 0 is allowed with beams",
        o.num_top_log_probs, r.sampling.beam_width);
  if (o.log_probs_mode == LogProbsMode::kRaw)
    return invalid_argument(
        "log_probs_mode: raw with beam_width {}; beams are ranked by processed ones, so only these "
        "are allowed",
        r.sampling.beam_width);
  if (o.return_generation_logits)
    return invalid_argument("return_generation_logits: not with beam_width {}; only with 1",
                            r.sampling.beam_width);
  if (!r.stop_strings.empty())
    return invalid_argument("stop_strings: not with beam_width {}; only with 1 (stop_words work)",
                            r.sampling.beam_width);
  return ok();
}

Status check_alignment(const Request& r, const RequestBounds& bounds) {
  const auto& heads = r.output.alignment_heads;
  const auto& [num_layers, num_heads] = bounds.scored_heads;
  if (heads.empty()) return ok();
  if (num_layers == 0)
    return invalid_argument(
        "alignment_heads: only for encoder-decoder models on one device; this model gives no "
        "scores "
        "of cross attention");
  RETURN_IF_ERROR(check_size("alignment_heads", heads.size(), kMaxAlignmentHeads));
  for (size_t i = 0; i < heads.size(); ++i) {
    RETURN_IF_ERROR(check_range(fmt::format("alignment_heads[{}].layer", i), heads[i].layer, 0,
                                num_layers - 1));
    RETURN_IF_ERROR(
        check_range(fmt::format("alignment_heads[{}].head", i), heads[i].head, 0, num_heads - 1));
  }
  const int64_t bytes = num_attention_scores(r, bounds) * static_cast<int64_t>(sizeof(float));
  if (bytes <= bounds.max_logits_bytes) return ok();
  return invalid_argument(
      "alignment_heads: scores of {} heads for {} tokens are {} bytes; at most {} are allowed "
      "(max_logits_bytes)",
      heads.size(), r.input_token_ids.size(), bytes, bounds.max_logits_bytes);
}

Status check_logits(const Request& r, const RequestBounds& bounds) {
  if (const auto num_top = r.output.num_prompt_log_probs) {
    RETURN_IF_ERROR(check_range("num_prompt_log_probs", *num_top, 0, kMaxTopLogProbs));
    if (r.prompt_table)
      return invalid_argument("num_prompt_log_probs: not with a prompt_table; only without");
    const int64_t bytes = prompt_log_prob_bytes(std::ssize(r.input_token_ids), *num_top);
    if (bytes > bounds.max_logits_bytes)
      return invalid_argument(
          "num_prompt_log_probs: {} for each of {} tokens are {} bytes; at most {} are allowed "
          "(max_logits_bytes)",
          *num_top, r.input_token_ids.size(), bytes, bounds.max_logits_bytes);
  }
  const int64_t bytes = logits_bytes(r, bounds);
  if (bytes <= bounds.max_logits_bytes) return ok();
  const char* const field = !r.output.return_generation_logits ? "return_context_logits"
                            : !r.output.return_context_logits
                                ? "return_generation_logits"
                                : "return_context_logits, return_generation_logits";
  return invalid_argument(
      "{}: {} rows of {} logits are {} bytes; at most {} are allowed (max_logits_bytes)", field,
      bytes / logits_row_bytes(bounds), bounds.vocab_size, bytes, bounds.max_logits_bytes);
}

Status check_stops(const Request& r, const RequestBounds& bounds) {
  RETURN_IF_ERROR(check_size("end_ids", r.end_ids.size(), kMaxEndIds));
  RETURN_IF_ERROR(check_ids("end_ids", r.end_ids, bounds.vocab_size));
  RETURN_IF_ERROR(check_words("stop_words", r.stop_words, kMaxStopWords, kMaxStopWordTokens,
                              bounds.vocab_size));
  if (!r.stop_strings.empty() && !bounds.has_tokenizer)
    return invalid_argument("stop_strings: the model directory has no usable tokenizer");
  RETURN_IF_ERROR(check_size("stop_strings", r.stop_strings.size(), kMaxStopStrings));
  for (size_t i = 0; i < r.stop_strings.size(); ++i)
    if (const size_t size = r.stop_strings[i].size(); size < 1 || size > kMaxStopStringBytes)
      return invalid_argument("stop_strings[{}]: {} bytes; allowed are 1 to {}", i, size,
                              kMaxStopStringBytes);
  return check_words("bad_words", r.bad_words, kMaxBadWords, kMaxBadWordTokens, bounds.vocab_size);
}

Status check_timestamps(const Request& r, const RequestBounds& bounds) {
  RETURN_IF_ERROR(check_size("suppressed_first_ids", r.suppressed_first_ids.size(), kMaxBadWords));
  RETURN_IF_ERROR(check_ids("suppressed_first_ids", r.suppressed_first_ids, bounds.vocab_size));
  if (!r.suppressed_first_ids.empty() && r.sampling.min_tokens.value_or(0) > 0)
    return invalid_argument("suppressed_first_ids: not with min_tokens {}; only with 0",
                            *r.sampling.min_tokens);
  if (!r.timestamp_rules) return ok();
  const TimestampRules& rules = *r.timestamp_rules;
  const int32_t last = bounds.vocab_size - 1;
  RETURN_IF_ERROR(check_range("timestamp_rules.first", rules.first, 0, last));
  RETURN_IF_ERROR(
      check_range("timestamp_rules.no_timestamps", rules.no_timestamps.value_or(0), 0, last));
  RETURN_IF_ERROR(check_range("timestamp_rules.end_of_text", rules.end_of_text, 0, last));
  RETURN_IF_ERROR(check_not_negative("timestamp_rules.max_initial", rules.max_initial));
  if (r.guided_decoding)
    return invalid_argument("timestamp_rules: not with guided_decoding; only without");
  return ok();
}

Status check_biases(const Request& r, int32_t vocab_size) {
  if (!r.embedding_bias.empty() && r.embedding_bias.size() != static_cast<size_t>(vocab_size))
    return invalid_argument("embedding_bias: {} values; none or {} (the vocabulary) are allowed",
                            r.embedding_bias.size(), vocab_size);
  for (size_t i = 0; i < r.embedding_bias.size(); ++i)
    RETURN_IF_ERROR(check_bias("embedding_bias", i, r.embedding_bias[i]));
  RETURN_IF_ERROR(check_size("logit_bias", r.logit_bias.size(), kMaxLogitBias));
  for (size_t i = 0; i < r.logit_bias.size(); ++i) {
    const auto& [token, value] = r.logit_bias[i];
    if (token < 0 || token >= vocab_size)
      return invalid_argument("logit_bias[{}]: token {} is not in [0, {})", i, token, vocab_size);
    RETURN_IF_ERROR(check_bias("logit_bias", i, value));
  }
  return ok();
}

Status check_duration(std::string_view field,
                      const std::optional<std::chrono::milliseconds>& duration) {
  if (!duration || duration->count() > 0) return ok();
  return invalid_argument("{}: {} ms is not allowed; more than 0", field, duration->count());
}

Status check_retention(const KvCacheRetentionConfig& c) {
  RETURN_IF_ERROR(
      check_size("kv_cache_retention.token_ranges", c.token_ranges.size(), kMaxRetentionRanges));
  int64_t free_from = 0;  // end of the previous range
  for (size_t i = 0; i < c.token_ranges.size(); ++i) {
    const auto& range = c.token_ranges[i];
    const std::string field = fmt::format("kv_cache_retention.token_ranges[{}]", i);
    if (range.token_start < free_from)
      return invalid_argument(
          "{}.token_start: {} is not allowed; at least {} (sorted, not "
          "overlapping)",
          field, range.token_start, free_from);
    if (range.token_end && *range.token_end <= range.token_start)
      return invalid_argument("{}.token_end: {} is not above token_start {}", field,
                              *range.token_end, range.token_start);
    free_from = range.token_end ? *range.token_end : int64_t{1} << 31;
    RETURN_IF_ERROR(check_range(field + ".priority", range.priority, 0, 100));
    RETURN_IF_ERROR(check_duration(field + ".duration", range.duration));
  }
  RETURN_IF_ERROR(check_range("kv_cache_retention.decode_priority", c.decode_priority, 0, 100));
  return check_duration("kv_cache_retention.decode_duration", c.decode_duration);
}

Status check_service(const Request& r) {
  if (!(r.priority >= 0 && r.priority <= 1))
    return invalid_argument("priority: {} is not in [0, 1]", r.priority);
  RETURN_IF_ERROR(check_duration("allotted_time", r.allotted_time));
  if (r.kv_cache_retention) RETURN_IF_ERROR(check_retention(*r.kv_cache_retention));
  if (r.cache_salt.size() > kMaxCacheSaltBytes)
    return invalid_argument("cache_salt: {} bytes; at most {}", r.cache_salt.size(),
                            kMaxCacheSaltBytes);
  return ok();
}

Status check_drafts(const Request& r, const RequestBounds& bounds) {
  if (r.draft_token_ids.empty()) return ok();
  if (r.sampling.beam_width > 1)
    return invalid_argument(
        "draft_token_ids: {} ids are not allowed with beam_width {}, only with 1",
        r.draft_token_ids.size(), r.sampling.beam_width);
  RETURN_IF_ERROR(check_size("draft_token_ids", r.draft_token_ids.size(),
                             static_cast<size_t>(bounds.limits.max_sequence_length)));
  return check_ids("draft_token_ids", r.draft_token_ids, bounds.vocab_size);
}

Status check_draft_logits(const Request& r, const RequestBounds& bounds) {
  if (const auto& threshold = r.draft_acceptance_threshold) {
    if (!(*threshold > 0 && *threshold <= 1))
      return invalid_argument("draft_acceptance_threshold: {} is not in (0, 1]", *threshold);
    if (r.draft_logits.empty())
      return invalid_argument("draft_acceptance_threshold: {} needs draft_logits", *threshold);
  }
  if (r.draft_logits.empty()) return ok();
  const size_t wanted = r.draft_token_ids.size() * static_cast<size_t>(bounds.vocab_size);
  if (r.draft_logits.size() != wanted)
    return invalid_argument(
        "draft_logits: {} of them; allowed are {}, {} for each of the {} draft_token_ids",
        r.draft_logits.size(), wanted, bounds.vocab_size, r.draft_token_ids.size());
  if (!bounds.weighs_drafts && !is_greedy(r.sampling))
    return invalid_argument(
        "draft_logits: on this device only for greedy requests; without them drafts are tested by "
        "equality");
  const auto wrong = std::ranges::find_if(r.draft_logits, [](float x) { return !(x < INFINITY); });
  if (wrong == r.draft_logits.end()) return ok();
  return invalid_argument("draft_logits: number {} is {}; allowed are finite ones and -inf",
                          wrong - r.draft_logits.begin(), *wrong);
}

// Checks the request's own lookahead parameters.
Status check_own_lookahead(const Request& r, const RequestBounds& bounds) {
  if (!r.lookahead) return ok();
  if (!bounds.lookahead)
    return invalid_argument(
        "lookahead: Cannot set the request lookahead decoding configuration when model instance "
        "lookahead parameters are not set.");
  const LookaheadConfig &own = *r.lookahead, &most = *bounds.lookahead;
  RETURN_IF_ERROR(check_lookahead(own));
  RETURN_IF_ERROR(check_range("lookahead.window_size", own.window_size, 1, most.window_size));
  RETURN_IF_ERROR(check_range("lookahead.ngram_size", own.ngram_size, 1, most.ngram_size));
  return check_range("lookahead.verification_set_size", own.verification_set_size, 0,
                     most.verification_set_size);
}

Status check_prompt_table(const Request& r, const RequestBounds& bounds) {
  if (!r.prompt_table) return ok();
  const PromptTable& t = *r.prompt_table;
  if (t.width < 1 || t.width != bounds.embedding_width)
    return invalid_argument("prompt_table.width: {} is not {}, that of the model's embeddings",
                            t.width, bounds.embedding_width);
  const auto width = static_cast<size_t>(t.width);
  if (t.values.empty() || t.values.size() % width != 0)
    return invalid_argument("prompt_table.values: {} of them are not rows of {}, at least one",
                            t.values.size(), t.width);
  if (const size_t bytes = t.values.size() * sizeof(uint16_t); bytes > kMaxPromptTableBytes)
    return invalid_argument("prompt_table.values: {} bytes; at most {}", bytes,
                            kMaxPromptTableBytes);
  const auto num_rows = static_cast<int64_t>(t.values.size() / width);
  if (bounds.max_prompt_table > 0 && num_rows > bounds.max_prompt_table)
    return invalid_argument(
        "prompt_table.values: {} rows are more than the max_prompt_embedding_table_size {} that "
        "the "
        "engine was built with",
        num_rows, bounds.max_prompt_table);
  if (!t.extra_ids.empty() && t.extra_ids.size() != r.input_token_ids.size())
    return invalid_argument(
        "prompt_table.extra_ids: {} of them; none or {}, one for each input "
        "token, are allowed",
        t.extra_ids.size(), r.input_token_ids.size());
  return ok();
}

Status check_encoder_input(const Request& r, const RequestBounds& bounds) {
  const EncoderFacts& encoder = bounds.encoder;
  if (encoder.max_length == 0)
    return r.encoder_input ? invalid_argument("encoder_input: the model has no encoder") : ok();
  const bool takes_features = encoder.feature_width > 0;
  if (!r.encoder_input)
    return invalid_argument("encoder_input: required, with {}; the model is an encoder-decoder",
                            takes_features ? "features" : "token_ids");
  const EncoderInput& input = *r.encoder_input;
  const size_t length = input.token_ids.size(), numbers = input.features.size();
  if (takes_features ? length > 0 : numbers > 0)
    return invalid_argument("encoder_input.{}: the model's encoder takes {}",
                            takes_features ? "token_ids" : "features",
                            takes_features ? "features" : "token_ids");
  const auto most = static_cast<size_t>(encoder.max_length);
  if (!takes_features) {
    if (length < 1 || length > most)
      return invalid_argument("encoder_input.token_ids: {} tokens are not in [1, {}]", length,
                              most);
    return check_ids("encoder_input.token_ids", input.token_ids, bounds.vocab_size);
  }
  const auto width = static_cast<size_t>(encoder.feature_width);
  const size_t frames = numbers / width;
  if (numbers % width != 0 || frames % 2 != 0 || frames < 2 || frames > 2 * most)
    return invalid_argument(
        "encoder_input.features: {} numbers are no even number of frames of {}, in [2, {}]",
        numbers, width, 2 * most);
  for (size_t i = 0; i < numbers; ++i)
    if (!std::isfinite(input.features[i]))
      return invalid_argument("encoder_input.features: number {} is not finite", i);
  return ok();
}

// Valid input ids: [0, vocab_size + rows of the prompt table).
int32_t num_input_ids(const Request& r, const RequestBounds& bounds) {
  if (!r.prompt_table) return bounds.vocab_size;
  return bounds.vocab_size +
         static_cast<int32_t>(r.prompt_table->values.size()) / bounds.embedding_width;
}

// The id behind the vocabulary may stand for a picture that is read by cross attention.
Status check_input_ids(const Request& r, const RequestBounds& bounds) {
  const bool has_marks = bounds.pictures.facts.in_cross && !r.pictures.empty();
  if (!has_marks) return check_ids("input_token_ids", r.input_token_ids, num_input_ids(r, bounds));
  std::vector<TokenId> others = r.input_token_ids;
  for (const Picture& picture : r.pictures) {
    TokenId& id = others[static_cast<size_t>(picture.first_token)];
    if (id == bounds.vocab_size) id = 0;
  }
  return check_ids("input_token_ids", others, num_input_ids(r, bounds));
}

// Checks the requirements of `field` for per-token work on the host.
Status check_host_steps(std::string_view field, const Request& r, const RequestBounds& bounds) {
  if (!bounds.has_tokenizer)
    return invalid_argument("{}: the model directory has no usable tokenizer", field);
  if (r.sampling.beam_width > 1)
    return invalid_argument("{}: not with beam_width {}; only with 1", field,
                            r.sampling.beam_width);
  if (!r.draft_token_ids.empty())
    return invalid_argument("{}: not with the {} ids of draft_token_ids; only without", field,
                            r.draft_token_ids.size());
  return ok();
}

Status check_guide(const Request& r, const RequestBounds& bounds) {
  if (!r.guided_decoding) return ok();
  const GuidedDecoding& guided = *r.guided_decoding;
  RETURN_IF_ERROR(check_range("guided_decoding.type", static_cast<int64_t>(guided.type), 0, 4));
  if ((guided.type == GuideType::kJson) != guided.guide.empty())
    return invalid_argument(
        "guided_decoding.guide: {} bytes; json has none, the other types need one",
        guided.guide.size());
  RETURN_IF_ERROR(check_host_steps("guided_decoding", r, bounds));
  if (r.end_ids.empty())
    return invalid_argument(
        "guided_decoding: without end_ids the output could not end; at least one is needed");
  return ok();
}

constexpr size_t kMaxMarkBytes = 64;

Status check_reasoning(const Request& r, const RequestBounds& bounds) {
  if (!r.reasoning) return ok();
  const ReasoningConfig& reasoning = *r.reasoning;
  if (reasoning.close.empty() || reasoning.close.size() > kMaxMarkBytes)
    return invalid_argument("reasoning.close: {} bytes; 1 to {} are allowed",
                            reasoning.close.size(), kMaxMarkBytes);
  if ((reasoning.open.empty() && !reasoning.begun) || reasoning.open.size() > kMaxMarkBytes)
    return invalid_argument("reasoning.open: {} bytes; 1 to {} are allowed, 0 with begun",
                            reasoning.open.size(), kMaxMarkBytes);
  if (reasoning.max_tokens && *reasoning.max_tokens < 0)
    return invalid_argument("reasoning.max_tokens: {}; at least 0 is allowed",
                            *reasoning.max_tokens);
  return check_host_steps("reasoning", r, bounds);
}

// Refuses what the engine was not built for.
Status check_built(const Request& r, const RequestBounds& bounds) {
  const auto num_prompt = static_cast<int64_t>(r.input_token_ids.size());
  if (bounds.max_input_len > 0 && num_prompt > bounds.max_input_len)
    return invalid_argument(
        "input_token_ids: {} tokens are more than the max_input_len {} that "
        "the engine was built with",
        num_prompt, bounds.max_input_len);
  if (r.output.return_context_logits && !bounds.gather_context_logits)
    return invalid_argument(
        "return_context_logits: the engine was built without gather_context_logits");
  if (r.output.num_prompt_log_probs && !bounds.gather_context_logits)
    return invalid_argument(
        "num_prompt_log_probs: the engine was built without gather_context_logits");
  return ok();
}

// Pooled requests have one sequence and no output tokens.
Status check_pooling(const Request& r, const RequestBounds& bounds) {
  const OutputConfig& o = r.output;
  if (!o.pooling) {
    if (bounds.num_labels > 0)
      return invalid_argument(
          "pooling: required: this model scores texts and has no language head");
    if (r.max_tokens >= 1) return ok();
    return invalid_argument("max_tokens: {} is not allowed; at least 1 is needed", r.max_tokens);
  }
  RETURN_IF_ERROR(check_range("pooling", static_cast<int64_t>(*o.pooling), 0, 2));
  if (!bounds.gives_hidden)
    return invalid_argument("pooling: the engine of this model gives no hidden states");
  if (*o.pooling == Pooling::kScore && bounds.num_labels == 0)
    return invalid_argument("pooling: score: the model has no head for scores");
  RETURN_IF_ERROR(check_range("max_tokens (with pooling)", r.max_tokens, 0, 0));
  const auto refuse = [](std::string_view field) {
    return invalid_argument("{}: not with pooling; only without", field);
  };
  if (r.sampling.beam_width > 1) return refuse("beam_width");
  if (num_sequences(r) > 1) return refuse(r.sampling.best_of ? "best_of" : "num_return_sequences");
  if (o.return_log_probs || o.num_top_log_probs > 0) return refuse("return_log_probs");
  if (o.return_context_logits) return refuse("return_context_logits");
  if (o.num_prompt_log_probs) return refuse("num_prompt_log_probs");
  if (!o.alignment_heads.empty()) return refuse("alignment_heads");
  if (o.return_encoder_output) return refuse("return_encoder_output");
  if (o.return_generation_logits) return refuse("return_generation_logits");
  if (r.guided_decoding) return refuse("guided_decoding");
  if (r.reasoning) return refuse("reasoning");
  if (!r.draft_token_ids.empty()) return refuse("draft_token_ids");
  return ok();
}

}  // namespace

int32_t num_sequences(const Request& request) {
  const SamplingConfig& s = request.sampling;
  if (s.beam_width > 1) return 1;
  return s.best_of.value_or(s.num_return_sequences.value_or(1));
}

int64_t num_attention_scores(const Request& r, const RequestBounds& bounds) {
  return std::ssize(r.output.alignment_heads) * std::ssize(r.input_token_ids) *
         num_encoder_positions(r, bounds);
}

int64_t logits_bytes(const Request& r, const RequestBounds& bounds) {
  const auto num_prompt = static_cast<int64_t>(r.input_token_ids.size());
  int64_t rows = r.output.return_context_logits ? num_prompt : 0;
  if (r.output.return_generation_logits)
    rows += num_sequences(r) *
            (sched::length_limit(bounds.limits, num_prompt, r.max_tokens) - num_prompt);
  int64_t bytes =
      rows * logits_row_bytes(bounds) + static_cast<int64_t>(r.draft_logits.size() * sizeof(float));
  bytes += num_attention_scores(r, bounds) * static_cast<int64_t>(sizeof(float));
  bytes += encoder_output_bytes(r, bounds);
  if (const auto num_top = r.output.num_prompt_log_probs)
    bytes += prompt_log_prob_bytes(num_prompt, *num_top);
  return bytes;
}

Status check_request(const Request& r, const RequestBounds& bounds) {
  RETURN_IF_ERROR(check_built(r, bounds));
  RETURN_IF_ERROR(check_pooling(r, bounds));
  RETURN_IF_ERROR(sched::Scheduler::validate(bounds.limits,
                                             static_cast<int64_t>(r.input_token_ids.size()),
                                             r.max_tokens, r.sampling.beam_width));
  RETURN_IF_ERROR(check_encoder_input(r, bounds));
  RETURN_IF_ERROR(check_pictures(r, bounds.pictures));
  RETURN_IF_ERROR(check_prompt_table(r, bounds));
  RETURN_IF_ERROR(check_input_ids(r, bounds));
  RETURN_IF_ERROR(check_drafts(r, bounds));
  RETURN_IF_ERROR(check_draft_logits(r, bounds));
  RETURN_IF_ERROR(check_own_lookahead(r, bounds));
  RETURN_IF_ERROR(check_guide(r, bounds));
  RETURN_IF_ERROR(check_reasoning(r, bounds));
  RETURN_IF_ERROR(check_sequences(r));
  if (const int32_t count = num_sequences(r); count > bounds.limits.max_queue_size)
    return invalid_argument("{}: {} sequences exceed the queue of {} (max_queue_size)",
                            r.sampling.best_of ? "best_of" : "num_return_sequences", count,
                            bounds.limits.max_queue_size);
  RETURN_IF_ERROR(check_sampling(r.sampling));
  RETURN_IF_ERROR(check_output(r));
  RETURN_IF_ERROR(check_alignment(r, bounds));
  RETURN_IF_ERROR(check_encoder_output(r, bounds));
  RETURN_IF_ERROR(check_cross_mask(r, bounds));
  RETURN_IF_ERROR(check_logits(r, bounds));
  RETURN_IF_ERROR(check_stops(r, bounds));
  RETURN_IF_ERROR(check_timestamps(r, bounds));
  RETURN_IF_ERROR(check_biases(r, bounds.vocab_size));
  return check_service(r);
}

}  // namespace nereid::runtime
