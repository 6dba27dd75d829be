// Checks of requests and options, before anything is queued.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "exec/runner.h"
#include "nereid/executor.h"
#include "runtime/prompts/pictures.h"
#include "sched/scheduler.h"

namespace nereid::runtime {

// Bounds that keep a request's checks and per-token lists cheap.
inline constexpr int32_t kMaxSequences = 128;  // num_return_sequences, best_of
inline constexpr int32_t kMaxTopLogProbs = 32;
inline constexpr size_t kMaxEndIds = 128;
inline constexpr size_t kMaxStopWords = 128;
inline constexpr size_t kMaxStopWordTokens = 256;
inline constexpr size_t kMaxStopStrings = 128;
inline constexpr size_t kMaxStopStringBytes = 4096;
inline constexpr size_t kMaxBadWords = 1024;
inline constexpr size_t kMaxBadWordTokens = 256;
inline constexpr size_t kMaxLogitBias = 1024;
inline constexpr size_t kMaxRetentionRanges = 1024;
inline constexpr size_t kMaxCacheSaltBytes = 256;
inline constexpr size_t kMaxAlignmentHeads = 512;
inline constexpr size_t kMaxPromptTableBytes = size_t{256} << 20;

// Capabilities of an executor, from its model and configuration.
struct RequestBounds {
  sched::Limits limits;
  int32_t vocab_size = 0;
  int32_t embedding_width = 0;
  bool has_tokenizer = false;
  int64_t max_logits_bytes = 0;
  int32_t max_input_len = 0;          // of the prompt; 0: the sequence limit
  int32_t max_prompt_table = 0;       // rows; 0: the bound of kMaxPromptTableBytes
  bool gather_context_logits = true;  // context logits and prompt log-probabilities are available
  bool gives_hidden = false;          // output.pooling is available
  std::optional<LookaheadConfig> lookahead;  // default parameters, with lookahead speculation
  bool weighs_drafts = false;                // see exec::Runner::weighs_drafts()
  EncoderFacts encoder;
  PictureRules pictures;
  exec::ScoredHeads scored_heads;  // output.alignment_heads
  int32_t num_labels = 0;          // > 0: the model scores texts and has no language head
};

// InvalidArgument with field, value and allowed values.
Status check_request(const Request& request, const RequestBounds& bounds);

// Upper bound of the bytes of logits, prompt log-probabilities and attention scores in all
// responses of a request, plus the logits that it brings.
int64_t logits_bytes(const Request& request, const RequestBounds& bounds);

// Numbers in a request's attention scores; 0: it asks for none. Its encoder input is still there.
int64_t num_attention_scores(const Request& request, const RequestBounds& bounds);

// InvalidArgument with option, value and allowed values.
Status check_config(const ExecutorConfig& config);

// The same for the lookahead parameters of either.
Status check_lookahead(const LookaheadConfig& config);

// Sequences of a checked request, each with a queue place and an id; beams are one.
int32_t num_sequences(const Request& request);

}  // namespace nereid::runtime
