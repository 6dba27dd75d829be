// Contract of the op that turns logits into tokens: parameters of a slot, its lists, the order of
// operations, results.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "tensor/view.h"

namespace nereid::kernels {

// Longest list of likeliest tokens that a row can ask for.
inline constexpr int32_t kMaxTopTokens = 32;

// Which logits the reported log-probabilities belong to: after bias, penalties, bans and
// temperature (before min_p, top_k and top_p), or as the model gave them.
enum class LogProbs : int32_t { kNone = 0, kProcessed = 1, kRaw = 2 };

// When a draft is taken for the token of its place; see step 6 of Sample. Of a greedy slot always
// as with kEqual.
enum class DraftTest : int32_t { kEqual = 0, kTypical = 1, kRatio = 2 };

// How a slot's tokens are drawn, constant for a sequence. Plain data, copied to the device as it
// is. The defaults are greedy.
struct SampleParams {
  uint64_t seed = 0;
  uint64_t lists = 0;  // address of the slot's SampleLists, relative to Args::lists_base
  int32_t top_k = 0;   // 0 = off; 1 = greedy
  float top_p = 0;     // 0 = off, >= 1: everything
  // The first generated token sees top_p; after k tokens without reset_id it is
  // max(top_p * top_p_decay^k, top_p_min).
  float top_p_decay = 1;
  float top_p_min = 0;
  int32_t top_p_reset_id = -1;  // this token sets k back to 0; < 0 = none
  // temperature * log(min_p), <= 0: logits below largest + min_p_gap (in f32) are dropped
  float min_p_gap = -std::numeric_limits<float>::infinity();
  float temperature = 1;  // > 0; 0 = greedy, penalties and log-probs as with 1
  float repetition = 1;   // > 0; of ids anywhere in the history
  float presence = 0;     // of ids at history positions >= penalty_begin
  float frequency = 0;    // the same, times the number of them
  int32_t penalty_begin = 0;
  int32_t num_prompt = 0;  // positions below are prompt
  int32_t min_length = 0;  // at positions below it the end ids are banned
  int32_t ngram = 0;       // no n-gram of this size appears twice; 0 = off
  int32_t num_end_ids = 0, num_biases = 0, num_bad_words = 0, num_bad_tokens = 0;
  int32_t has_dense_bias = 0;
  int32_t num_top = 0;  // likeliest tokens to report, <= kMaxTopTokens
  LogProbs log_probs = LogProbs::kNone;
  int32_t draws = 1;          // 0: only the top list is wanted (beams)
  int32_t keeps_history = 0;  // Args::history holds the slot's tokens; drawn ones are appended
  DraftTest draft_test = DraftTest::kEqual;
  float draft_threshold = 0;  // kTypical: in (0, 1]; kRatio: in (0, 1], or 0: drawn each time
  int32_t reserved = 0;
};

constexpr bool is_greedy(const SampleParams& p) {
  return p.temperature <= 0 || p.top_k == 1 || (p.top_k <= 0 && p.top_p <= 0);
}
constexpr float temperature_of(const SampleParams& p) {
  return p.temperature > 0 ? p.temperature : 1;
}
constexpr bool has_penalties(const SampleParams& p) {
  return p.repetition != 1 || p.presence != 0 || p.frequency != 0;
}
// Whether any of the steps 1 to 3 of Sample applies to the token at `position`.
constexpr bool edits_logits(const SampleParams& p, int32_t position) {
  return p.has_dense_bias || p.num_biases > 0 || has_penalties(p) || p.ngram > 0 ||
         p.num_bad_words > 0 || (p.num_end_ids > 0 && position < p.min_length);
}
// Whether drafts are tested by more than the token that is drawn.
constexpr bool weighs_drafts(const SampleParams& p) {
  return p.draws && p.draft_test != DraftTest::kEqual && !is_greedy(p);
}
// Nothing but the argmax of the untouched logits is wanted, at any position.
constexpr bool is_plain_greedy(const SampleParams& p) {
  constexpr int32_t kBeforeAll = -1;  // at which end ids are banned if ever
  return p.draws && is_greedy(p) && p.log_probs == LogProbs::kNone && !edits_logits(p, kBeforeAll);
}
// top_p of a token with k tokens generated since the last reset.
constexpr float top_p_after(const SampleParams& p, int32_t k) {
  const float start = p.top_p > 0 && p.top_p < 1 ? p.top_p : 1;
  if (k <= 0 || p.top_p <= 0 || p.top_p_decay == 1) return start;
  double value = start, factor = p.top_p_decay;
  for (; k > 0; k /= 2, factor *= factor)
    if (k % 2) value *= factor;
  const float decayed = static_cast<float>(value);
  return decayed > p.top_p_min ? decayed : p.top_p_min < 1 ? p.top_p_min : 1;
}

// The lists of a slot: 4-byte cells one after the other, in this order.
struct SampleLists {
  const int32_t* end_ids;     // [num_end_ids]
  const int32_t* bias_ids;    // [num_biases], distinct
  const float* biases;        // [num_biases]
  const int32_t* bad_ends;    // [num_bad_words] where each word ends in bad_tokens, not decreasing
  const int32_t* bad_tokens;  // [num_bad_tokens]
  const float* dense_bias;    // [vocab] when has_dense_bias

  constexpr SampleLists(const SampleParams& p, const int32_t* cells, const float* values)
      : end_ids(cells),
        bias_ids(end_ids + p.num_end_ids),
        biases(values + p.num_end_ids + p.num_biases),
        bad_ends(bias_ids + 2 * int64_t{p.num_biases}),
        bad_tokens(bad_ends + p.num_bad_words),
        dense_bias(biases + p.num_biases + p.num_bad_words + p.num_bad_tokens) {}

  static constexpr int64_t num_cells(const SampleParams& p, int64_t vocab) {
    return int64_t{p.num_end_ids} + 2 * int64_t{p.num_biases} + p.num_bad_words + p.num_bad_tokens +
           (p.has_dense_bias ? vocab : 0);
  }
};

// What is new in a step.
struct SampleRow {
  int32_t slot = 0;
  int32_t position = 0;    // of the drawn token in its sequence: the counter of the draw
  int32_t logits_row = 0;  // of logits; no two rows share one
  // The row comes after the one that is `after` before it, of the same slot and for the position
  // before: it is drawn only if that one gave the token `draft`. 0: in any case. Rows of one slot
  // follow each other, and no two come after the same row with the same draft, so that those that
  // are drawn are a path.
  int32_t after = 0;
  int32_t draft = -1;
  int32_t mask = -1;          // of Sample::masks: the tokens that may be drawn. -1: all
  int32_t draft_logits = -1;  // row of Sample::draft_logits that `draft` was drawn from; -1: none
  int32_t peeks = 0;          // 1: if it is not drawn, the likeliest token is wanted
};

constexpr int64_t mask_words(int64_t vocab) { return (vocab + 31) / 32; }
constexpr bool edits_logits(const SampleParams& p, const SampleRow& row) {
  return row.mask >= 0 || edits_logits(p, row.position);
}

inline constexpr int32_t kNotDrawn = -2;

struct SampleResult {
  int32_t token = -1;  // -1: the logits hold a NaN or +inf, or everything is banned;
                       // kNotDrawn: a draft before it was wrong
  float log_prob = 0;  // of the token, over the whole vocabulary; with LogProbs other than kNone
  float log_kept = 0;  // kProcessed, top_k > 0: log of the probability of all that top_k keeps
  int32_t likeliest = -1;  // of a row that peeks and is not drawn: the largest logit as it came
                           // (ties: lower id); -1: one is a NaN or +inf
};

struct TopToken {
  int32_t token = -1;  // -1: fewer ids than wanted are possible
  float log_prob = 0;
};

// Draws one token for each row, of rows that come after others as long as drafts are right: each
// sees the tokens drawn before it, and the slot ends up with those that were drawn. With l
// = logits, h = history[slot][0 .. position), T = temperature:
//  1. l += dense_bias, then l[bias_ids] += biases.
//  2. Once for each distinct id of h: l = l < 0 ? l * repetition : l / repetition. With c = the
//     number of times it is in h[penalty_begin ..), if c > 0: l -= presence; l -= frequency * c.
//     (A temperature that comes before the penalties is the same as presence and frequency
//     multiplied with it: repetition is homogeneous. So whoever fills SampleParams decides.)
//  3. -inf for: ids that the row's mask leaves out; end ids while position < min_length; with ngram
//  = n > 0 and |h| >= n, every id that
//     followed the last n - 1 tokens of h earlier in h; the last token of every bad word whose
//     others are the end of h.
//  4. log-probs: log-softmax of l / T, or of the logits before step 1 (kRaw).
//  5. Drop l < largest + min_p_gap; top_k > 0: keep the k largest (ties: lower id). Weights
//     e = exp((l - largest) / T), P = top_p of this position (off: 1), r = u * P * sum(e); the
//     token is the first, in descending order, whose prefix sum of e is >= r. Neither top_k nor
//     top_p, or T = 0, or top_k = 1: the largest (ties: lower id). u = uniform(seed, position) of
//     base/rng.h.
//  6. Unless weighs_drafts(), that is all. Else, with p the probabilities that step 5 draws with
//     and t = draft_threshold, for the drafts of the rows that come after this one:
//     kTypical: the first draft d with p(d) > min(t, sqrt(t) * exp(-H)) is the token, H being the
//     entropy of p in nats; if there is none, step 5 says.
//     kRatio: of the first draft d that has draft_logits, with q the probabilities which steps 1 to
//     3 and 5 make of those: d is the token if p(d) > 0 and p(d) >= a * q(d), where a = t, or
//     uniform(seed, position, 1) for t = 0. Else it is drawn with weights max(p - q, 0): the first
//     id, ascending, whose prefix sum is >= uniform(seed, position, 2) * sum; where the sum is 0,
//     and where no draft has logits, step 5 says. Of draft_logits with a NaN or +inf, or all of
//     which are banned, q is 0. If d was drawn from q with other random numbers
//     than these, and t = 0, the token is distributed as p.
// Steps 1 to 3 are single f32 operations, the same bits on every device; ids outside the vocabulary
// are ignored; an id at -inf stays there; a result that is not below +inf becomes the largest
// float. Sums are accumulated in f64 (of weights rounded to f32 at least). A row with draws = 0
// gives the top list and its first token. Top lists are ordered by l, ties by
// id, and leave out what is at -inf. Sources: the TensorRT-LLM order of sampling and top_p draw;
// penalties and n-gram ban as in Hugging Face transformers; typical acceptance (Cai et al. 2024,
// Medusa); the test by ratio (Leviathan et al. 2023, Chen et al. 2023).
struct Sample {
  static constexpr std::string_view kName = "sample";
  struct Problem {
    int64_t rows = 1, vocab = 0;
    // Every row is greedy without lists, mask, penalties, n-gram, log-probs or top list.
    bool all_greedy = false;
    bool weighs_drafts = false;  // for some row weighs_drafts() is true and a row comes after it
  };
  Problem problem;
  View logits;      // f32 [logits rows, vocab]; rows that are sampled may be overwritten
  View raw_logits;  // the same before this op, in other memory; needed when a kRaw row has
                    // anything of steps 1 to 3
  const SampleRow* rows = nullptr;       // [m]; the first comes after none
  const SampleParams* params = nullptr;  // [slots]
  const void* lists_base = nullptr;
  const uint32_t* masks = nullptr;  // [masks, mask_stride]: bit id % 32 of word id / 32 is 1 if the
  int64_t mask_stride = 0;          // id may be drawn; needed when a row has one
  View draft_logits;  // f32 [drafts, vocab], may be overwritten; needed when a row has some
  int32_t* history = nullptr;  // [slots, history_stride]; needed when a row keeps history
  int64_t history_stride = 0;
  SampleResult* results = nullptr;  // [m]
  TopToken* top = nullptr;          // [m, top_stride]; needed when a row has a top list
  int64_t top_stride = 0;
  int32_t* slot_tokens = nullptr;  // [slots]: the last token drawn for each

  friend void reference(const Sample& a);  // the definition, in kernels/ref
};

}  // namespace nereid::kernels
