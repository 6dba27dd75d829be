#include "runtime/request_sequences.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/hash.h"
#include "runtime/requests/request_check.h"
#include "runtime/requests/sample_params.h"
#include "runtime/sequence_payload.h"

namespace nereid::runtime {
namespace {

// Prefixes are shared among sequences of one salt, one adapter and one encoder input that all of
// their tokens read. No two such triples have the same root.
std::string prefix_root(const std::string& salt, const Adapter* adapter,
                        const std::vector<EncoderRows>& inputs) {
  const bool is_lasting = !inputs.empty() && inputs.front().end == sched::EncoderSpec::kAllTokens;
  const std::string front = is_lasting ? "e" + inputs.front().key : "";
  if (!adapter) return front + (salt.empty() ? "" : "s" + salt);
  return front + "a" + hex64(adapter->key) + salt;
}

std::vector<sched::EncoderSpec> encoder_specs(const std::vector<EncoderRows>& inputs) {
  std::vector<sched::EncoderSpec> specs;
  for (const EncoderRows& input : inputs)
    specs.push_back(
        {.key = input.key,
         .length = input.length,
         .num_parts = std::max(input.num_parts, static_cast<int32_t>(input.windows.size())),
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
  payload->guide = std::move(parts.guide);
  return payload;
}

}  // namespace

std::vector<sched::SequenceSpec> request_sequences(RequestId id, Request request,
                                                   SequenceParts parts) {
  const int32_t count = num_sequences(request);
  const Adapter* const adapter = parts.adapter;
  sched::SequenceSpec first{
      .id = id,
      .prompt = std::move(request.input_token_ids),
      .input_keys = std::move(parts.input_keys),
      .max_new_tokens = request.max_tokens,
      .end_ids = std::move(request.end_ids),
      .stop_words = std::move(request.stop_words),
      .sampling = request.sampling,
      .output = request.output,
      .drafts = std::move(request.draft_token_ids),
      .has_grammar = parts.guide != nullptr,
      .cache_salt = prefix_root(request.cache_salt, adapter, parts.encoder_inputs),
      .adapter = adapter ? adapter->key : 0,
      .adapter_pages = adapter ? adapter->num_pages : 0,
      .encoder_inputs = encoder_specs(parts.encoder_inputs),
      .whole_spans = std::move(parts.whole_spans),
      .score_weight = parts.score_weight,
      .retention = std::move(request.kv_cache_retention),
      .priority = request.priority,
      .streams_beams = request.streaming,
      .arrival = parts.arrival};
  first.payload = payload_of(request, parts);
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
  }
  return group;
}

}  // namespace nereid::runtime
