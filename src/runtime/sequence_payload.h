// Data of a sequence that modules read whenever it has a row. The scheduler only holds it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "nereid/request.h"
#include "nereid/response.h"
#include "runtime/prompts/encoder_input.h"
#include "sched/sequence.h"
#include "text/grammar/guided_output.h"

namespace nereid::runtime {

// One for all sequences of a request.
struct SequencePayload : sched::Payload {
  // Sampler, and proposers that draw
  std::vector<std::vector<TokenId>> bad_words;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<TokenId> suppressed_first_ids;
  std::optional<TimestampRules> timestamp_rules;
  std::vector<float> embedding_bias;  // [vocab]; empty: none
  float draft_threshold = 0;  // of kernels::SampleParams: by ratio with draft_logits, else typical

  // Speculation
  std::vector<float> draft_logits;  // [drafts, vocab] of SequenceSpec::drafts; empty: do not matter
  std::optional<LookaheadConfig> lookahead;

  // PromptEmbeddings: bf16 [rows, width]. Ids of the prompt beyond the model's vocabulary are rows:
  // vocabulary size + i is row i.
  std::vector<uint16_t> prompt_table;

  // EncoderInputs
  std::vector<EncoderRows> encoder_inputs;  // as SequenceSpec::encoder_inputs
  // Components of the prompt's positions, kernels::kPositionComponents each; empty: each is the
  // position. Behind the prompt: position + component_offset.
  std::vector<int32_t> components;
  int32_t component_offset = 0;

  // EncoderInputs: memory for the encoder's output; null: the request does not ask for it. Only the
  // module writes to it.
  std::shared_ptr<EncoderOutput> encoder_output;
  // EncoderInputs: bits of CrossAttentionMask, exec::cross_mask_words() for each row; empty: none.
  std::vector<uint32_t> cross_mask;

  // Alignment: memory for the scores of OutputConfig::alignment_heads, of the request's first
  // sequence; null: none. Only the module writes to it.
  std::shared_ptr<AttentionScores> scores;

  // GrammarMasks: what the output must be; null: anything (SequenceSpec::has_grammar is false)
  std::shared_ptr<const text::OutputConstraint> guide;
};

// Empty where the sequence has none.
inline const SequencePayload& payload_of(const sched::SequenceSpec& spec) {
  static const SequencePayload none;
  return spec.payload ? static_cast<const SequencePayload&>(*spec.payload) : none;
}
inline const SequencePayload& payload_of(const sched::ScheduledRow& row) {
  return payload_of(row.sequence->spec());
}

}  // namespace nereid::runtime
