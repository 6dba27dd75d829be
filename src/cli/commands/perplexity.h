// The measurements of `nereid perplexity`, without their printing.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/status.h"
#include "nereid/executor.h"

namespace nereid::cli {

// A text is scored in windows of `window` tokens that begin `stride` apart, each computed alone. A
// window scores the tokens that the previous one did not reach, except its own first token, which
// has no context. If stride < window, each token has a context of at least window - stride tokens.
// Source: "Perplexity of fixed-length models" of Hugging Face transformers' documentation.
struct Windows {
  int32_t window = 0;  // at least 2
  int32_t stride = 0;  // 1 to window
};

struct TextScore {
  int64_t num_scored = 0;        // tokens scored
  double negative_log_prob = 0;  // sum of -ln p over them
  // Compared with another model, sums over the same positions.
  double divergence = 0;      // KL(other || this) of the next token
  int64_t num_same_best = 0;  // positions with the same likeliest token

  double perplexity() const;
};

// Called after each window with the number of tokens done.
using ScoreProgress = std::function<void(int64_t done, const TextScore& so_far)>;

// Scores a text. Memory: one window's logits, f32 [window, vocab], for each model; requests run one
// at a time. `other` may be null; its vocabulary must equal the model's. InvalidArgument: fewer
// than two tokens, or logits over ExecutorConfig::max_logits_bytes; else a failed request's status.
StatusOr<TextScore> score_text(Executor& model, Executor* other, std::span<const TokenId> ids,
                               const Windows& windows, const ScoreProgress& progress = {});

}  // namespace nereid::cli
