// Defaults, the two orders of sampling, list packing.
#include "runtime/requests/sample_params.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "base/check.h"
#include "runtime/sequence_payload.h"

namespace nereid::runtime {
namespace {

using kernels::LogProbs;
using kernels::SampleParams;

constexpr float kDefaultTopPMin = 1e-6f;

int32_t saturated(int64_t x) {
  return static_cast<int32_t>(std::min<int64_t>(x, std::numeric_limits<int32_t>::max()));
}

void set_drawing(const SamplingConfig& s, SampleParams& p) {
  p.seed = s.seed.value_or(0);
  p.top_k = s.top_k.value_or(0);
  p.top_p = s.top_p.value_or(0);
  p.top_p_decay = s.top_p_decay.value_or(1);
  p.top_p_min = s.top_p_min.value_or(kDefaultTopPMin);
  p.top_p_reset_id = s.top_p_reset_id.value_or(-1);
  p.temperature = s.temperature.value_or(1);
  if (const float min_p = s.min_p.value_or(0); min_p > 0)
    p.min_p_gap = kernels::temperature_of(p) * std::log(min_p);
}

void set_draft_test(const sched::SequenceSpec& spec, SampleParams& p) {
  const SequencePayload& payload = payload_of(spec);
  p.draft_threshold = payload.draft_threshold;
  if (!payload.draft_logits.empty())
    p.draft_test = kernels::DraftTest::kRatio;
  else if (payload.draft_threshold > 0)
    p.draft_test = kernels::DraftTest::kTypical;
}

void set_penalties(const SamplingConfig& s, SampleParams& p) {
  const float scale = s.order == SamplingOrder::kTemperatureFirst ? kernels::temperature_of(p) : 1;
  p.repetition = s.repetition_penalty.value_or(1);
  p.presence = s.presence_penalty.value_or(0) * scale;
  p.frequency = s.frequency_penalty.value_or(0) * scale;
  p.penalty_begin = std::min(s.prompt_ignore_length.value_or(0), p.num_prompt);
  p.ngram = s.no_repeat_ngram_size.value_or(0);
}

void set_output(const sched::SequenceSpec& spec, SampleParams& p) {
  const int32_t width = spec.sampling.beam_width;
  if (width > 1) {
    p.draws = 0;
    p.num_top = 2 * width;
    p.log_probs = LogProbs::kProcessed;
    return;
  }
  p.num_top = spec.output.num_top_log_probs;
  if (!spec.output.return_log_probs && p.num_top == 0) return;
  p.log_probs =
      spec.output.log_probs_mode == LogProbsMode::kRaw ? LogProbs::kRaw : LogProbs::kProcessed;
}

// Ids that are banned for the first min_tokens tokens, or for the first one.
void add_end_ids(const sched::SequenceSpec& spec, SlotParams& slot) {
  int32_t min_tokens = spec.sampling.min_tokens.value_or(0);
  const auto& suppressed = payload_of(spec).suppressed_first_ids;
  if (min_tokens <= 0 && suppressed.empty()) return;
  if (min_tokens > 0) {
    slot.cells = spec.end_ids;
    for (const auto& word : spec.stop_words)
      if (word.size() == 1) slot.cells.push_back(word[0]);
  } else {
    slot.cells = suppressed;
    min_tokens = 1;
  }
  slot.params.num_end_ids = static_cast<int32_t>(slot.cells.size());
  slot.params.min_length = saturated(int64_t{slot.params.num_prompt} + min_tokens);
}

void set_timestamp_rules(const SequencePayload& payload, SampleParams& p) {
  if (!payload.timestamp_rules) return;
  const TimestampRules& rules = *payload.timestamp_rules;
  p.first_timestamp = rules.first;
  p.no_timestamps = rules.no_timestamps.value_or(-1);
  p.end_of_text = rules.end_of_text;
  p.max_initial_timestamp = rules.max_initial.value_or(-1);
}

// An id that is named more than once gets the sum.
void add_biases(const SequencePayload& payload, SlotParams& slot) {
  std::map<TokenId, float> biases;
  for (const auto& [id, bias] : payload.logit_bias) biases[id] += bias;
  for (const auto& [id, bias] : biases) slot.cells.push_back(id);
  for (const auto& [id, bias] : biases) slot.cells.push_back(std::bit_cast<int32_t>(bias));
  slot.params.num_biases = static_cast<int32_t>(biases.size());
}

void add_bad_words(const SequencePayload& payload, SlotParams& slot) {
  int32_t end = 0;
  for (const auto& word : payload.bad_words)
    slot.cells.push_back(end += static_cast<int32_t>(word.size()));
  for (const auto& word : payload.bad_words)
    slot.cells.insert(slot.cells.end(), word.begin(), word.end());
  slot.params.num_bad_words = static_cast<int32_t>(payload.bad_words.size());
  slot.params.num_bad_tokens = end;
}

void add_dense_bias(const SequencePayload& payload, int32_t vocab_size, SlotParams& slot) {
  if (payload.embedding_bias.empty()) return;
  NEREID_CHECK(payload.embedding_bias.size() == static_cast<size_t>(vocab_size));
  slot.params.has_dense_bias = 1;
  for (const float bias : payload.embedding_bias)
    slot.cells.push_back(std::bit_cast<int32_t>(bias));
}

bool needs_history(const SequencePayload& payload, const SampleParams& p) {
  const bool has_long_bad_word =
      std::ranges::any_of(payload.bad_words, [](const auto& word) { return word.size() > 1; });
  const bool resets_top_p = p.top_p > 0 && p.top_p_decay != 1 && p.top_p_reset_id >= 0;
  return kernels::has_penalties(p) || p.ngram > 0 || p.first_timestamp >= 0 || has_long_bad_word ||
         resets_top_p;
}

}  // namespace

SlotParams slot_params(const sched::SequenceSpec& spec, int32_t num_prompt, int32_t vocab_size) {
  const SequencePayload& payload = payload_of(spec);
  SlotParams slot;
  slot.params.num_prompt = num_prompt;
  set_drawing(spec.sampling, slot.params);
  set_penalties(spec.sampling, slot.params);
  set_output(spec, slot.params);
  set_draft_test(spec, slot.params);
  set_timestamp_rules(payload, slot.params);
  add_end_ids(spec, slot);
  add_biases(payload, slot);
  add_bad_words(payload, slot);
  add_dense_bias(payload, vocab_size, slot);
  slot.params.keeps_history = needs_history(payload, slot.params);
  return slot;
}

bool is_greedy(const SamplingConfig& sampling) {
  SampleParams params;
  set_drawing(sampling, params);
  return kernels::is_greedy(params);
}

void add_draft_params(const sched::Sequence& sequence, int32_t slot, int32_t vocab_size,
                      std::span<const TokenId> drafts, exec::StepMessage& step, int32_t num_top) {
  SlotParams wanted = slot_params(sequence.spec(), sequence.num_prompt(), vocab_size);
  wanted.params.num_top = num_top;
  wanted.params.draft_test = kernels::DraftTest::kEqual;
  wanted.params.draft_threshold = 0;
  wanted.params.log_probs = num_top > 0 ? kernels::LogProbs::kProcessed : kernels::LogProbs::kNone;
  if (std::exchange(wanted.params.has_dense_bias, 0) != 0)
    wanted.cells.resize(wanted.cells.size() - static_cast<size_t>(vocab_size));
  step.loads.push_back({.params = wanted.params,
                        .slot = slot,
                        .num_cells = static_cast<int32_t>(wanted.cells.size())});
  step.cells.insert(step.cells.end(), wanted.cells.begin(), wanted.cells.end());
  if (wanted.params.keeps_history == 0) return;
  const auto known = sequence.tokens();
  step.histories.push_back(
      {.slot = slot, .num_tokens = static_cast<int32_t>(known.size() + drafts.size())});
  step.history_tokens.insert(step.history_tokens.end(), known.begin(), known.end());
  step.history_tokens.insert(step.history_tokens.end(), drafts.begin(), drafts.end());
}

}  // namespace nereid::runtime
