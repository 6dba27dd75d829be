#include "runtime/prompt_scorer.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "sched/sequence.h"

namespace nereid::runtime {
namespace {

// Higher logits first, then lower ids.
bool before(const TokenLogProb& a, const TokenLogProb& b) {
  return a.log_prob != b.log_prob ? a.log_prob > b.log_prob : a.token < b.token;
}

// Fills `top` with the likeliest tokens and their logits.
void find_top(std::span<const float> logits, std::span<TokenLogProb> top) {
  if (top.empty()) return;
  size_t count = 0;
  for (size_t id = 0; id < logits.size(); ++id) {
    const TokenLogProb here{static_cast<TokenId>(id), logits[id]};
    if (count == top.size() && !before(here, top.back())) continue;
    count = std::min(count + 1, top.size());
    size_t at = count - 1;
    for (; at > 0 && before(here, top[at - 1]); --at) top[at] = top[at - 1];
    top[at] = here;
  }
}

// Scores the token at `position` + 1 by the logits that its forerunners gave. False: they are not
// finite.
bool score(std::span<const float> logits, TokenId token, size_t position, PromptLogProbs& out) {
  const float largest = *std::ranges::max_element(logits);
  double sum = 0;
  int32_t rank = 1;
  const float own = logits[static_cast<size_t>(token)];
  for (const float x : logits) {
    sum += std::exp(x - largest);
    rank += x > own;
  }
  const double log_sum = std::log(sum);
  if (!std::isfinite(log_sum)) return false;
  const auto log_prob = [&](float x) {
    return static_cast<float>((double{x} - largest) - log_sum);
  };
  out.log_probs[position] = log_prob(own);
  out.ranks[position] = rank;
  const auto num_top = static_cast<size_t>(out.num_top);
  const auto top = std::span(out.top).subspan(position * num_top, num_top);
  find_top(logits, top);
  for (TokenLogProb& entry : top) entry.log_prob = log_prob(entry.log_prob);
  return true;
}

}  // namespace

void PromptScorer::open(RequestId id, int32_t num_top) {
  PromptLogProbs scores;
  scores.num_top = num_top;
  open_.try_emplace(id, std::move(scores));
}

Status PromptScorer::add(const sched::Row& row, std::span<const float> logits,
                         std::shared_ptr<const PromptLogProbs>& scores) {
  const auto found = open_.find(row.sequence->id());
  if (found == open_.end() || logits.empty()) return ok();
  PromptLogProbs& all = found->second;
  const auto tokens = row.sequence->tokens(row.beam);
  const size_t vocab = logits.size() / static_cast<size_t>(row.num_tokens);
  const auto num_prompt = static_cast<size_t>(row.sequence->num_prompt());
  const auto start = static_cast<size_t>(row.start), end = static_cast<size_t>(row.end());
  try {
    all.num_top = std::min(all.num_top, static_cast<int32_t>(vocab));
    all.log_probs.resize(num_prompt - 1);
    all.ranks.resize(num_prompt - 1);
    all.top.resize((num_prompt - 1) * static_cast<size_t>(all.num_top));
    for (size_t position = start; position < std::min(end, num_prompt - 1); ++position)
      if (!score(logits.subspan((position - start) * vocab, vocab), tokens[position + 1], position,
                 all))
        return internal_error(
            "the logits of position {} of the prompt were not finite (NaN or infinity); only this "
            "request fails",
            position);
    if (end < num_prompt) return ok();
    scores = std::make_shared<const PromptLogProbs>(std::move(all));
  } catch (const std::bad_alloc&) {
    return resource_exhausted("there is no memory for the log-probabilities of {} prompt tokens",
                              num_prompt);
  }
  open_.erase(found);
  return ok();
}

int32_t most_scored_tokens(int32_t vocab_size) {
  constexpr int32_t kLogits = 4 << 20;
  return std::max(kLogits / vocab_size, 1);
}

int64_t prompt_log_prob_bytes(int64_t num_prompt, int32_t num_top) {
  constexpr auto kOwn = static_cast<int64_t>(sizeof(float) + sizeof(int32_t));
  constexpr auto kTop = static_cast<int64_t>(sizeof(TokenLogProb));
  return std::max<int64_t>(num_prompt - 1, 0) * (kOwn + num_top * kTop);
}

}  // namespace nereid::runtime
