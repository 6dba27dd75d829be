// The responses of an Executor.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "nereid/request.h"

namespace nereid {

enum class FinishReason : uint8_t {
  kNotFinished = 0,
  kEndId = 1,
  kStopWords = 2,
  kLength = 3,
  kTimedOut = 4,
  kCancelled = 5,
};

struct TokenLogProb {
  TokenId token = 0;
  float log_prob = 0;
};

// One sequence, or one beam, of a Response. All lists but token_ids are aligned with the generated
// tokens of this response (token_ids without the echoed prompt).
struct SequenceOutput {
  std::vector<TokenId> token_ids;  // streaming: the new tokens; else all of them
  FinishReason finish_reason = FinishReason::kNotFinished;
  int32_t num_output_tokens = 0;                         // generated so far, end id excluded
  std::vector<float> log_probs;                          // empty unless asked for
  std::vector<std::vector<TokenLogProb>> top_log_probs;  // [token][likeliest first]
  // Over all generated tokens, not length-normalised; with log_probs.
  std::optional<float> cum_log_prob;
  std::vector<float> generation_logits;  // f32 [token, vocab]; empty unless asked for
};

// Log-probabilities of each prompt token but the first, under the model's distribution given
// the tokens before it.
struct PromptLogProbs {
  std::vector<float> log_probs;   // [prompt - 1]
  std::vector<int32_t> ranks;     // [prompt - 1]: 1 + number of likelier tokens
  int32_t num_top = 0;            // as requested, at most the vocabulary
  std::vector<TokenLogProb> top;  // [prompt - 1, num_top], likeliest first
};

// Scores of heads of cross attention before the softmax: how well each prompt token's query fits
// each position of the encoder's output.
struct AttentionScores {
  int32_t num_heads = 0, num_tokens = 0, num_positions = 0;  // tokens: of the prompt
  std::vector<float> scores;                                 // [heads, tokens, positions]
};

// The output of an encoder-decoder model's encoder, after its last norm.
struct EncoderOutput {
  int32_t num_positions = 0, width = 0;
  std::vector<float> values;  // [num_positions, width]: bf16 numbers
};

// Times on the steady clock and block counts of one sequence so far.
struct RequestMetrics {
  std::chrono::steady_clock::time_point arrival, first_scheduled, first_token, last_token;
  int32_t reused_blocks = 0;     // prompt blocks found in the prefix cache
  int32_t cached_tokens = 0;     // prompt tokens that were not computed again
  int32_t missed_blocks = 0;     // full prompt blocks that had to be computed
  int32_t allocated_blocks = 0;  // blocks taken from the pool for the prompt
  int32_t num_preemptions = 0;
  int32_t num_drafts = 0;           // draft tokens tested
  int32_t num_accepted_drafts = 0;  // draft tokens accepted
};

// Either an error or a result. Every accepted request gets exactly one Response with is_final.
struct Response {
  RequestId request_id = 0;
  std::optional<uint64_t> client_id;
  absl::Status status;  // not OK: the request failed; no outputs
  bool is_final = false;
  int32_t sequence_index = 0;           // index among num_return_sequences
  bool is_sequence_final = false;       // the last response of this sequence
  std::vector<SequenceOutput> outputs;  // one without beams, else one for each beam, best first
  int32_t num_input_tokens = 0;
  // f32 [prompt, vocab], once, on the first response of sequence 0; null unless asked for
  std::shared_ptr<const std::vector<float>> context_logits;
  std::shared_ptr<const PromptLogProbs> prompt_log_probs;   // see context_logits
  std::shared_ptr<const AttentionScores> attention_scores;  // see context_logits
  std::shared_ptr<const EncoderOutput> encoder_output;      // see context_logits
  std::vector<float>
      embedding;  // [hidden_size], not normalised, or [num_labels]; empty unless output.pooling
  RequestMetrics metrics;
};

}  // namespace nereid
