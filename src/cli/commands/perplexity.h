// What `nereid perplexity` measures, apart from how it is printed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/status.h"
#include "nereid/executor.h"

namespace nereid::cli {

// A text is scored in windows of `window` tokens that begin `stride` apart, each computed by
// itself. A window scores the tokens that the one before it has not reached, but never its own
// first token, which nothing comes before. With stride < window tokens are scored after at least
// window - stride others.
// Source: "Perplexity of fixed-length models" of Hugging Face transformers' documentation.
struct Windows {
  int32_t window = 0;  // at least 2
  int32_t stride = 0;  // 1 to window
};

struct TextScore {
  int64_t num_scored = 0;        // tokens
  double negative_log_prob = 0;  // sum over them, natural logarithms
  // Beside another model; sums over the same places:
  double divergence = 0;      // Kullback-Leibler, of this model's next token from the other one's
  int64_t num_same_best = 0;  // places where both have the same likeliest token

  double perplexity() const;
};

// Called after each window with the tokens of the text done so far.
using ScoreProgress = std::function<void(int64_t done, const TextScore& so_far)>;

// Needs memory for one window's logits, f32 [window, vocab], of each model; requests run one at a
// time. `other` may be null; its vocabulary must be the model's. InvalidArgument: fewer than two
// tokens, or logits over ExecutorConfig::max_logits_bytes; else what a request failed with.
StatusOr<TextScore> score_text(Executor& model, Executor* other, std::span<const TokenId> ids,
                               const Windows& windows, const ScoreProgress& progress = {});

}  // namespace nereid::cli
