// Sampling op: slot parameters, lists, order of operations, results.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "tensor/view.h"

namespace nereid::kernels {

// Maximum number of top tokens per row.
inline constexpr int32_t kMaxTopTokens = 32;

// Logits of reported log-probabilities: after bias, penalties, bans and temperature (before min_p,
// top_k, top_p), or raw.
enum class LogProbs : int32_t { kNone = 0, kProcessed = 1, kRaw = 2 };

// Draft test, see step 6 of Sample. Greedy slots always use kEqual.
enum class DraftTest : int32_t { kEqual = 0, kTypical = 1, kRatio = 2 };

// Sampling parameters of a slot, constant for a sequence. Plain data for devices. Default: greedy.
struct SampleParams {
  uint64_t seed = 0;
  uint64_t lists = 0;  // address of SampleLists relative to Args::lists_base
  int32_t top_k = 0;   // 0 = off; 1 = greedy
  float top_p = 0;     // 0 = off, >= 1: all
  // top_p of the first generated token; after k tokens: max(top_p * top_p_decay^k, top_p_min).
  float top_p_decay = 1;
  float top_p_min = 0;
  int32_t top_p_reset_id = -1;  // this token resets k to 0; < 0 = none
  // temperature * log(min_p), <= 0: logits below largest + min_p_gap (in f32) are dropped
  float min_p_gap = -std::numeric_limits<float>::infinity();
  float temperature = 1;  // > 0; 0 = greedy, penalties and log-probs as with 1
  float repetition = 1;   // > 0; for ids in the history
  float presence = 0;     // for ids at history positions >= penalty_begin
  float frequency = 0;    // times their count
  int32_t penalty_begin = 0;
  int32_t num_prompt = 0;  // prompt length
  int32_t min_length = 0;  // below this position end ids are banned
  int32_t ngram = 0;       // n-grams of this size must not repeat; 0 = off
  int32_t num_end_ids = 0, num_biases = 0, num_bad_words = 0, num_bad_tokens = 0;
  int32_t has_dense_bias = 0;
  int32_t num_top = 0;  // top tokens to report, <= kMaxTopTokens
  LogProbs log_probs = LogProbs::kNone;
  int32_t draws = 1;          // 0: top list only (beam search)
  int32_t keeps_history = 0;  // Args::history has the slot's tokens; sampled ones are appended
  DraftTest draft_test = DraftTest::kEqual;
  float draft_threshold = 0;  // kTypical: in (0, 1]; kRatio: in (0, 1], or 0: uniform random
  // Transcripts (step 3): ids >= first_timestamp are time stamps; < 0: no rules. Need the history.
  int32_t first_timestamp = -1;
  int32_t no_timestamps = -1;          // token of transcripts without them; < 0: no such token
  int32_t end_of_text = 0;             // ids below are text
  int32_t max_initial_timestamp = -1;  // index of the latest one that may be first; < 0: any
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
         p.num_bad_words > 0 || (p.num_end_ids > 0 && position < p.min_length) ||
         p.first_timestamp >= 0;
}
// Whether drafts are tested by probability (kTypical, kRatio).
constexpr bool weighs_drafts(const SampleParams& p) {
  return p.draws && p.draft_test != DraftTest::kEqual && !is_greedy(p);
}
// Whether the result is the argmax of the unedited logits at any position.
constexpr bool is_plain_greedy(const SampleParams& p) {
  constexpr int32_t kBeforeAll = -1;  // a position at which every end-id ban applies
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

// Lists of a slot: consecutive 4-byte cells in this order.
struct SampleLists {
  const int32_t* end_ids;     // [num_end_ids]
  const int32_t* bias_ids;    // [num_biases], distinct
  const float* biases;        // [num_biases]
  const int32_t* bad_ends;    // [num_bad_words] end of each word in bad_tokens, ascending
  const int32_t* bad_tokens;  // [num_bad_tokens]
  const float* dense_bias;    // [vocab], with has_dense_bias

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

// Per-step arguments of a row.
struct SampleRow {
  int32_t slot = 0;
  int32_t position = 0;    // of the sampled token; counter of the random number
  int32_t logits_row = 0;  // index in logits, unique
  // Draft chains and trees: the row follows row (index - after), of the same slot and the previous
  // position, and is sampled only if that one gives the token `draft`. 0: always sampled. Rows of a
  // slot are adjacent; siblings have different drafts, so the sampled rows are a path.
  int32_t after = 0;
  int32_t draft = -1;
  int32_t mask = -1;          // index in Sample::masks: allowed tokens. -1: all
  int32_t draft_logits = -1;  // row of Sample::draft_logits that `draft` was drawn from; -1: none
  int32_t wants_argmax = 0;   // 1: argmax wanted if the row is not sampled
};

constexpr int64_t mask_words(int64_t vocab) { return (vocab + 31) / 32; }
constexpr bool edits_logits(const SampleParams& p, const SampleRow& row) {
  return row.mask >= 0 || edits_logits(p, row.position);
}

inline constexpr int32_t kNotDrawn = -2;

struct SampleResult {
  int32_t token = -1;      // -1: logits with NaN or +inf, or everything is banned; kNotDrawn: an
                           // earlier draft was rejected
  float log_prob = 0;      // of the token, over the whole vocabulary; unless LogProbs::kNone
  float log_kept = 0;      // kProcessed, top_k > 0: log of the probability of the kept top_k tokens
  int32_t likeliest = -1;  // row with `wants_argmax` that is not sampled: argmax of the raw logits
                           // (ties: lower id); -1: a NaN or +inf
};

struct TopToken {
  int32_t token = -1;  // -1: fewer candidates than requested
  float log_prob = 0;
};

// Samples one token per row, and further rows as long as drafts are accepted: each sees the tokens
// sampled before it, and the slot ends with the sampled ones. l = logits, h = history[slot][0 ..
// position), T = temperature:
//  1. l += dense_bias, then l[bias_ids] += biases.
//  2. For each distinct id of h: l = l < 0 ? l * repetition : l / repetition. For c = its count in
// h[penalty_begin ..), if c > 0: l -= presence; l -= frequency * c. (A temperature before the
// penalties equals presence and frequency times temperature, because repetition is homogeneous: the
// caller decides.)
//  3. l = -inf for: ids outside the row's mask; end ids while position < min_length; with ngram = n
// > 0 and |h| >= n each id that followed the last n - 1 tokens of h earlier in h; the last token of
// each bad word whose other tokens end h. Time stamps (0 <= first_timestamp < vocab, g = h from
// num_prompt on): l = -inf for no_timestamps; if g is empty, ids below first_timestamp and time
// stamps above the max_initial_timestamp-th; if g ends with a time stamp, all of them where g[-2]
// is one or g has one token, else ids below end_of_text; time stamps below the last one of g, and
// that one unless g ends with it and g[-2] is no time stamp; then ids below first_timestamp, if the
// sum of exp(l) of time stamps is above exp(l) of each other id.
//  4. Log-probs: log-softmax of l / T, or of the raw logits (kRaw).
//  5. Drop l < largest + min_p_gap; top_k > 0: keep the k largest (ties: lower id). Weights e =
// exp((l - largest) / T), P = top_p of this position (off: 1), r = u * P * sum(e); the token is the
// first in descending order whose prefix sum of e is >= r. Without top_k and top_p, or T = 0, or
// top_k = 1: the largest (ties: lower id). u = uniform(seed, position) of base/rng.h.
//  6. With weighs_drafts(): p = probabilities of step 5, t = draft_threshold, for the drafts of the
// rows that follow this one:
//     kTypical: the first draft d with p(d) > min(t, sqrt(t) * exp(-H)) is the token, H = entropy
// of p in nats; if none, step 5 decides.
//     kRatio: of the first draft d with draft_logits, q = probabilities by steps 1 to 3 and 5 of
// these: d is the token if p(d) > 0 and p(d) >= a * q(d), a = t, or uniform(seed, position, 1) for
// t = 0. Else it is drawn with weights max(p - q, 0): the first id, ascending, whose prefix sum is
// >= uniform(seed, position, 2) * sum; if the sum is 0, or no draft has logits, step 5 decides. q =
// 0 for draft_logits with a NaN or +inf, or all banned. If d was drawn from q with other random
// numbers and t = 0, the token is distributed as p.
// Steps 1 to 3 are single f32 operations, equal bits on every device; ids outside the vocabulary
// are ignored; -inf stays; results >= +inf become the largest float. Sums are in f64 (of weights
// rounded to f32 at least). draws = 0: the top list and its first token. Top lists: by l, ties by
// id, without -inf. Sources: TensorRT-LLM's order of sampling and top_p draw; penalties and n-gram
// ban as in Hugging Face transformers; time stamps as in the program of Whisper (Radford et al.
// 2022); typical acceptance (Cai et al. 2024, Medusa); ratio test of drafts (Leviathan et al. 2023,
// Chen et al. 2023).
struct Sample {
  static constexpr std::string_view kName = "sample";
  struct Problem {
    int64_t rows = 1, vocab = 0;
    // All rows are greedy, without lists, mask, penalties, n-gram, log-probs and top list.
    bool all_greedy = false;
    bool weighs_drafts = false;  // some row with weighs_drafts() has a following row
  };
  Problem problem;
  View logits;      // f32 [logits rows, vocab]; rows to sample may be overwritten
  View raw_logits;  // unedited copy of logits; required if a kRaw row has any of steps 1 to 3
  const SampleRow* rows = nullptr;       // [m]; the first follows none
  const SampleParams* params = nullptr;  // [slots]
  const void* lists_base = nullptr;
  const uint32_t* masks = nullptr;  // [masks, mask_stride]: bit id % 32 of word id / 32 allows the
                                    // id; required if a row has a mask
  int64_t mask_stride = 0;          // id may be drawn; needed when a row has one
  View draft_logits;  // f32 [drafts, vocab], may be overwritten; required if a row has some
  int32_t* history = nullptr;  // [slots, history_stride]; required if a row keeps history
  int64_t history_stride = 0;
  SampleResult* results = nullptr;  // [m]
  TopToken* top = nullptr;          // [m, top_stride]; required if a row has a top list
  int64_t top_stride = 0;
  int32_t* slot_tokens = nullptr;  // [slots]: the last sampled token

  friend void reference(const Sample& a);  // definition, in kernels/ref
};

}  // namespace nereid::kernels
