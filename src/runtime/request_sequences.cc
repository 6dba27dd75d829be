#include "runtime/request_sequences.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <utility>

#include "base/hash.h"
#include "exec/step_message.h"
#include "runtime/requests/request_check.h"
#include "runtime/requests/sample_params.h"
#include "runtime/sequence_payload.h"

namespace nereid::runtime {
namespace {

// Prefixes are shared among sequences of one salt, one adapter, and one encoder input that all of
// their tokens read through one mask. No two of these have the same root: digests have one length.
std::string prefix_root(const std::string& salt, const Adapter* adapter,
                        const std::vector<EncoderRows>& inputs, std::span<const uint32_t> mask) {
  const bool is_lasting = !inputs.empty() && !inputs.front().has_mark &&
                          inputs.front().end == sched::EncoderSpec::kAllTokens;
  std::string front = is_lasting ? "e" + inputs.front().key : "";
  if (!mask.empty()) front += "m" + digest_of(std::as_bytes(mask));
  if (!adapter) return front + (salt.empty() ? "" : "s" + salt);
  return front + "a" + hex64(adapter->key) + salt;
}

// Rows of words, bit p % 32 of word p / 32: position p.
std::vector<uint32_t> mask_bits(const CrossAttentionMask& mask) {
  const int32_t words = exec::cross_mask_words(mask.num_positions);
  const size_t num_rows = mask.attends.size() / static_cast<size_t>(mask.num_positions);
  std::vector<uint32_t> bits(num_rows * static_cast<size_t>(words));
  for (size_t row = 0, i = 0; row < num_rows; ++row)
    for (int32_t at = 0; at < mask.num_positions; ++at, ++i)
      if (mask.attends[i] != 0)
        bits[row * static_cast<size_t>(words) + static_cast<size_t>(at / 32)] |= 1u << (at % 32);
  return bits;
}

// `own`: ends the keys of results that are the request's alone; empty: they are shared.
std::vector<sched::EncoderSpec> encoder_specs(const std::vector<EncoderRows>& inputs,
                                              const std::string& own) {
  std::vector<sched::EncoderSpec> specs;
  for (const EncoderRows& input : inputs)
    specs.push_back({.key = input.key + own,
                     .is_private = !own.empty(),
                     .length = input.length,
                     .num_parts = std::max(input.num_parts + (input.num_padding > 0 ? 1 : 0),
                                           static_cast<int32_t>(input.windows.size())),
                     .num_results = input.num_results,
                     .begin = input.begin,
                     .end = input.end});
  return specs;
}

std::shared_ptr<const SequencePayload> payload_of(Request& request, SequenceParts& parts) {
  auto payload = std::make_shared<SequencePayload>();
  payload->bad_words = std::move(request.bad_words);
  payload->suppressed_first_ids = std::move(request.suppressed_first_ids);
  payload->timestamp_rules = request.timestamp_rules;
  payload->logit_bias = std::move(request.logit_bias);
  payload->embedding_bias = std::move(request.embedding_bias);
  payload->draft_threshold = parts.typical_acceptance;
  if (!request.draft_logits.empty() && !is_greedy(request.sampling)) {
    payload->draft_logits = std::move(request.draft_logits);
    payload->draft_threshold = request.draft_acceptance_threshold.value_or(0);
  }
  payload->lookahead = request.lookahead;
  if (request.prompt_table) payload->prompt_table = std::move(request.prompt_table->values);
  payload->encoder_inputs = std::move(parts.encoder_inputs);
  payload->components = std::move(parts.components);
  payload->component_offset = parts.component_offset;
  payload->scores = std::move(parts.scores);
  payload->encoder_output = std::move(parts.encoder_output);
  if (request.cross_attention_mask) payload->cross_mask = mask_bits(*request.cross_attention_mask);
  payload->guide = std::move(parts.guide);
  return payload;
}

}  // namespace

std::vector<sched::SequenceSpec> request_sequences(RequestId id, Request request,
                                                   SequenceParts parts) {
  const int32_t count = num_sequences(request);
  const Adapter* const adapter = parts.adapter;
  const std::string own = request.output.return_encoder_output ? hex64(id) : "";
  std::vector<sched::EncoderSpec> encoder_inputs = encoder_specs(parts.encoder_inputs, own);
  sched::SequenceSpec first{.id = id,
                            .prompt = std::move(request.input_token_ids),
                            .input_keys = std::move(parts.input_keys),
                            .max_new_tokens = request.max_tokens,
                            .end_ids = std::move(request.end_ids),
                            .stop_words = std::move(request.stop_words),
                            .sampling = request.sampling,
                            .output = request.output,
                            .drafts = std::move(request.draft_token_ids),
                            .has_grammar = parts.guide != nullptr,
                            .adapter = adapter ? adapter->key : 0,
                            .adapter_pages = adapter ? adapter->num_pages : 0,
                            .encoder_inputs = std::move(encoder_inputs),
                            .whole_spans = std::move(parts.whole_spans),
                            .score_weight = parts.score_weight,
                            .retention = std::move(request.kv_cache_retention),
                            .priority = request.priority,
                            .streams_beams = request.streaming,
                            .arrival = parts.arrival};
  auto payload = payload_of(request, parts);
  first.cache_salt =
      prefix_root(request.cache_salt, adapter, payload->encoder_inputs, payload->cross_mask);
  first.payload = std::move(payload);
  // A time beyond the clock's range is no deadline.
  const auto time = std::min(request.allotted_time.value_or(parts.max_time), parts.max_time);
  if (time < std::chrono::years(100)) first.deadline = first.arrival + time;
  if (count > request.sampling.num_return_sequences.value_or(1))
    first.output.return_log_probs = true;  // best_of ranks by them
  std::vector<sched::SequenceSpec> group(static_cast<size_t>(count), first);
  for (int32_t i = 1; i < count; ++i) {
    sched::SequenceSpec& spec = group[static_cast<size_t>(i)];
    spec.id = id + static_cast<RequestId>(i);
    spec.leader = id;
    spec.sampling.seed = request.sampling.seed.value_or(0) + static_cast<uint64_t>(i);
    spec.output.return_context_logits = false;
    spec.output.num_prompt_log_probs.reset();
    spec.output.alignment_heads.clear();
    spec.output.return_encoder_output = false;
  }
  return group;
}

}  // namespace nereid::runtime
