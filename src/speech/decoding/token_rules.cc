#include "speech/decoding/token_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace nereid::speech {
namespace {

class Mask {
 public:
  Mask(std::span<uint32_t> words, int32_t vocab) : words_(words), vocab_(vocab) {
    std::ranges::fill(words_, ~uint32_t{0});
    if (const int32_t rest = vocab % 32; rest != 0) words_.back() = (uint32_t{1} << rest) - 1;
  }

  void ban(int32_t id) {
    if (id >= 0 && id < vocab_) words_[static_cast<size_t>(id) / 32] &= ~(uint32_t{1} << id % 32);
  }
  // Bans ids in [begin, end).
  void ban(int32_t begin, int32_t end) {
    begin = std::max(begin, 0), end = std::min(end, vocab_);
    for (; begin < end && begin % 32 != 0; ++begin) ban(begin);
    for (; begin + 32 <= end; begin += 32) words_[static_cast<size_t>(begin) / 32] = 0;
    for (; begin < end; ++begin) ban(begin);
  }

 private:
  std::span<uint32_t> words_;
  int32_t vocab_;
};

bool is_allowed(std::span<const uint32_t> words, size_t id) {
  return (words[id / 32] >> (id % 32) & 1) != 0;
}

void allow_timestamps(const TokenRules& rules, std::span<const int32_t> generated, int32_t vocab,
                      Mask& mask) {
  const int32_t first = rules.first_timestamp;
  const auto is_timestamp = [first](int32_t id) { return id >= first; };
  mask.ban(rules.no_timestamps);
  const size_t size = generated.size();
  if (size == 0) {
    mask.ban(0, first);
    if (rules.most_first_timestamp >= 0 && rules.most_first_timestamp < vocab - first)
      mask.ban(first + rules.most_first_timestamp + 1, vocab);
    return;
  }
  const bool is_last = is_timestamp(generated.back());
  const bool is_pair = size < 2 || is_timestamp(generated[size - 2]);
  if (is_last && is_pair) mask.ban(first, vocab);
  if (is_last && !is_pair) mask.ban(0, rules.end);
  const auto latest = std::find_if(generated.rbegin(), generated.rend(), is_timestamp);
  if (latest == generated.rend()) return;
  // A segment may begin where the one before ended.
  const bool is_begin = is_last && !is_pair;
  mask.ban(first, is_begin ? *latest : *latest + 1);
}

}  // namespace

void allow_tokens(const TokenRules& rules, std::span<const int32_t> generated, int32_t vocab,
                  std::span<uint32_t> words) {
  Mask mask(words, vocab);
  for (const int32_t id : rules.suppressed) mask.ban(id);
  if (generated.empty())
    for (const int32_t id : rules.suppressed_first) mask.ban(id);
  if (rules.has_timestamps()) allow_timestamps(rules, generated, vocab, mask);
}

bool must_be_timestamp(const TokenRules& rules, std::span<const float> logits,
                       std::span<const uint32_t> allowed) {
  if (!rules.has_timestamps()) return false;
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const auto first = std::min(static_cast<size_t>(rules.first_timestamp), logits.size());
  double likeliest = kNone, latest = kNone, sum = 0;
  for (size_t id = 0; id < first; ++id)
    if (is_allowed(allowed, id)) likeliest = std::max<double>(likeliest, logits[id]);
  for (size_t id = first; id < logits.size(); ++id)
    if (is_allowed(allowed, id)) latest = std::max<double>(latest, logits[id]);
  if (latest == kNone) return false;
  for (size_t id = first; id < logits.size(); ++id)
    if (is_allowed(allowed, id)) sum += std::exp(logits[id] - latest);
  return latest + std::log(sum) > likeliest;
}

}  // namespace nereid::speech
