// Biases, penalties and bans of a row: O(lists + history), plus O(vocabulary) for a dense bias.
#include "kernels/cpu/edit_logits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace nereid::kernels::cpu {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();
constexpr float kMost = std::numeric_limits<float>::max();
constexpr uint32_t kSeen = 1u << 31;  // flag next to the count

float edited(float old, float value) {
  return old == kBanned ? kBanned : value <= kMost ? value : kMost;
}

bool knows(std::span<float> logits, int32_t id) {
  return id >= 0 && static_cast<size_t>(id) < logits.size();
}

void ban(std::span<float> logits, int32_t id) {
  if (knows(logits, id)) logits[id] = kBanned;
}

void add_biases(const SampleParams& p, const SampleLists& lists, std::span<float> logits) {
  if (p.has_dense_bias)
    for (size_t id = 0; id < logits.size(); ++id)
      logits[id] = edited(logits[id], logits[id] + lists.dense_bias[id]);
  for (int32_t i = 0; i < p.num_biases; ++i)
    if (const int32_t id = lists.bias_ids[i]; knows(logits, id))
      logits[id] = edited(logits[id], logits[id] + lists.biases[i]);
}

// Visits banned ids only: mask words are mostly all ones or almost zero.
void apply_mask(const uint32_t* mask, std::span<float> logits) {
  for (size_t first = 0; first < logits.size(); first += 32) {
    const size_t count = std::min<size_t>(32, logits.size() - first);
    uint32_t banned = ~mask[first / 32] & ~uint32_t{0} >> (32 - count);
    if (banned == ~uint32_t{0}) {
      std::fill_n(&logits[first], 32, kBanned);
      continue;
    }
    for (; banned != 0; banned &= banned - 1)
      logits[first + static_cast<size_t>(std::countr_zero(banned))] = kBanned;
  }
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

// Bans ids in [begin, end).
void ban_range(std::span<float> logits, int64_t begin, int64_t end) {
  begin = std::max<int64_t>(begin, 0), end = std::min(end, std::ssize(logits));
  if (begin < end) std::fill(logits.begin() + begin, logits.begin() + end, kBanned);
}

void apply_timestamp_rules(const SampleParams& p, std::span<const int32_t> history,
                           std::span<float> logits) {
  const int32_t first = p.first_timestamp;
  if (!knows(logits, first)) return;
  const auto is_timestamp = [first](int32_t id) { return id >= first; };
  const auto generated =
      history.subspan(std::min(static_cast<size_t>(std::max(p.num_prompt, 0)), history.size()));
  const size_t size = generated.size();
  ban(logits, p.no_timestamps);
  if (size == 0) {
    ban_range(logits, 0, first);
    if (p.max_initial_timestamp >= 0)
      ban_range(logits, int64_t{first} + p.max_initial_timestamp + 1, std::ssize(logits));
    return;
  }
  const bool is_last = is_timestamp(generated.back());
  const bool ends_segment = is_last && size > 1 && !is_timestamp(generated[size - 2]);
  if (is_last)
    ban_range(logits, ends_segment ? 0 : first, ends_segment ? p.end_of_text : std::ssize(logits));
  const auto latest = std::find_if(generated.rbegin(), generated.rend(), is_timestamp);
  if (latest != generated.rend())
    ban_range(logits, first, int64_t{*latest} + (ends_segment ? 0 : 1));
  const auto times = logits.subspan(static_cast<size_t>(first));
  const double most = *std::ranges::max_element(times);
  if (most == kBanned) return;
  double sum = 0;
  for (const float l : times) sum += std::exp(l - most);
  const auto others = logits.first(static_cast<size_t>(first));
  if (first == 0 || most + std::log(sum) > *std::ranges::max_element(others))
    ban_range(logits, 0, first);
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

// Bans the tokens behind earlier occurrences of the last n - 1 tokens. matched_[i]: Z function of
// the reversed history = number of tokens ending at distance i that equal those at the end. Linear
// in the history.
void LogitsEditor::ban_repeated_ngrams(int32_t n, std::span<const int32_t> history,
                                       std::span<float> logits) {
  const auto size = static_cast<int64_t>(history.size());
  if (size < n) return;
  const int32_t* const last = history.data() + size - 1;
  matched_.assign(history.size() + 1, 0);
  int64_t begin = 0, end = 0;  // the match that extends farthest
  for (int64_t i = 1; i + n - 1 <= size; ++i) {
    int64_t length = i < end ? std::min(end - i, matched_[i - begin]) : 0;
    while (length < n - 1 && i + length < size && last[-length] == last[-i - length]) ++length;
    matched_[i] = length;
    if (i + length > end) begin = i, end = i + length;
    if (length >= n - 1) ban(logits, last[1 - i]);
  }
}

void LogitsEditor::edit(const SampleParams& p, const SampleLists& lists, const uint32_t* mask,
                        std::span<const int32_t> history, int32_t position,
                        std::span<float> logits) {
  if (mask) apply_mask(mask, logits);
  add_biases(p, lists, logits);
  if (has_penalties(p)) penalise(p, history, logits);
  if (position < p.min_length)
    for (int32_t i = 0; i < p.num_end_ids; ++i) ban(logits, lists.end_ids[i]);
  if (p.ngram > 0) ban_repeated_ngrams(p.ngram, history, logits);
  ban_bad_words(p, lists, history, logits);
  if (p.first_timestamp >= 0) apply_timestamp_rules(p, history, logits);
}

}  // namespace nereid::kernels::cpu
