// Biases, penalties and bans of one row; the work grows with the lists and the history, not with
// the vocabulary (a dense bias apart).
#include "kernels/cpu/edit_logits.h"

#include <algorithm>
#include <limits>

namespace nereid::kernels::cpu {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr float kMost = std::numeric_limits<float>::max();
constexpr uint32_t kSeen = 1u << 31;  // beside the count in the lower bits

float edited(float old, float value) {
  return old == kNone ? kNone : value <= kMost ? value : kMost;
}

bool knows(std::span<float> logits, int32_t id) {
  return id >= 0 && static_cast<size_t>(id) < logits.size();
}

void ban(std::span<float> logits, int32_t id) {
  if (knows(logits, id)) logits[id] = kNone;
}

void add_biases(const SampleParams& p, const SampleLists& lists, std::span<float> logits) {
  if (p.has_dense_bias)
    for (size_t id = 0; id < logits.size(); ++id)
      logits[id] = edited(logits[id], logits[id] + lists.dense_bias[id]);
  for (int32_t i = 0; i < p.num_biases; ++i)
    if (const int32_t id = lists.bias_ids[i]; knows(logits, id))
      logits[id] = edited(logits[id], logits[id] + lists.biases[i]);
}

void ban_repeated_ngrams(int32_t n, std::span<const int32_t> history, std::span<float> logits) {
  if (history.size() < static_cast<size_t>(n)) return;
  const size_t context = static_cast<size_t>(n) - 1;
  const int32_t* const suffix = history.data() + history.size() - context;
  for (size_t i = 0; i + context < history.size(); ++i)
    if (std::equal(suffix, suffix + context, history.data() + i)) ban(logits, history[i + context]);
}

void ban_bad_words(const SampleParams& p, const SampleLists& lists,
                   std::span<const int32_t> history, std::span<float> logits) {
  int32_t begin = 0;
  for (int32_t w = 0; w < p.num_bad_words; ++w) {
    const int32_t* const word = lists.bad_tokens + begin;
    const int32_t length = lists.bad_ends[w] - begin;
    begin = lists.bad_ends[w];
    if (length < 1 || static_cast<size_t>(length - 1) > history.size()) continue;
    if (std::equal(word, word + length - 1, history.data() + history.size() - (length - 1)))
      ban(logits, word[length - 1]);
  }
}

}  // namespace

void LogitsEditor::penalise(const SampleParams& p, std::span<const int32_t> history,
                            std::span<float> logits) {
  if (counts_.size() < logits.size()) counts_.resize(logits.size());
  for (size_t i = 0; i < history.size(); ++i) {
    if (!knows(logits, history[i])) continue;
    uint32_t& count = counts_[history[i]];
    count = (count | kSeen) + (static_cast<int64_t>(i) >= p.penalty_begin);
  }
  for (const int32_t id : history) {
    if (!knows(logits, id) || counts_[id] == 0) continue;
    const uint32_t count = counts_[id] & ~kSeen;
    counts_[id] = 0;
    float l = logits[id];
    l = edited(l, l < 0 ? l * p.repetition : l / p.repetition);
    if (count > 0) {
      l = edited(l, l - p.presence);
      l = edited(l, l - p.frequency * static_cast<float>(count));
    }
    logits[id] = l;
  }
}

void LogitsEditor::edit(const SampleParams& p, const SampleLists& lists,
                        std::span<const int32_t> history, int32_t position,
                        std::span<float> logits) {
  add_biases(p, lists, logits);
  if (has_penalties(p)) penalise(p, history, logits);
  if (position < p.min_length)
    for (int32_t i = 0; i < p.num_end_ids; ++i) ban(logits, lists.end_ids[i]);
  if (p.ngram > 0) ban_repeated_ngrams(p.ngram, history, logits);
  ban_bad_words(p, lists, history, logits);
}

}  // namespace nereid::kernels::cpu
