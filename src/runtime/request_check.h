// Checks of what a client sends, before anything is queued.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "nereid/executor.h"
#include "sched/scheduler.h"

namespace nereid::runtime {

// Generous bounds that keep one request's checks and lists per token cheap.
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
inline constexpr size_t kMaxPromptTableBytes = size_t{256} << 20;

// What an executor can do, by its model and its configuration.
struct RequestBounds {
  sched::Limits limits;
  int32_t vocab_size = 0;
  int32_t embedding_width = 0;
  bool has_tokenizer = false;
  int64_t max_logits_bytes = 0;
  int32_t max_input_len = 0;     // of a prompt; 0: as long as a sequence
  int32_t max_prompt_table = 0;  // rows; 0: as kMaxPromptTableBytes says
  bool gather_context_logits =
      true;                   // a prompt's logits, or what is made of them, may be asked for
  bool gives_hidden = false;  // output.pooling may be asked for
  std::optional<LookaheadConfig> lookahead;  // of the executor, if its speculation is that
  bool weighs_drafts = false;                // see exec::Runner
  int32_t num_labels = 0;  // above 0: the model scores texts, and has no language head
};

// InvalidArgument naming field, value and what is allowed.
Status check_request(const Request& request, const RequestBounds& bounds);

// Most bytes of logits and of log-probabilities of its prompt that the responses to such a request
// can hold, all its sequences together, and of the logits that it brings.
int64_t logits_bytes(const Request& request, const RequestBounds& bounds);

// The same for the options of an executor.
Status check_config(const ExecutorConfig& config);

// The same for one of either.
Status check_lookahead(const LookaheadConfig& config);

// Sequences that are computed for a request, each with a place in the queue and an id of its own;
// beams are one. Of a request that has passed check_request().
int32_t num_sequences(const Request& request);

}  // namespace nereid::runtime
