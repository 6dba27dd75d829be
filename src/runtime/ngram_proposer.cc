// NgramProposer: an index of each sequence's runs of tokens that grows with it.
#include "runtime/ngram_proposer.h"

#include <algorithm>

namespace nereid::runtime {
namespace {

// Runs that one call adds: a long prompt must not hold up the step. The rest follows step by step.
constexpr size_t kMostAtOnce = 4096;

uint64_t run_hash(std::span<const TokenId> run) {
  uint64_t h = 0;
  for (const TokenId token : run) {
    h = (h ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
    h ^= h >> 32;
  }
  return h;
}

}  // namespace

// The last run is left out: it is what is looked for.
void NgramProposer::extend(Index& index, std::span<const TokenId> tokens) {
  const size_t end = std::min(tokens.size(), index.num_indexed + kMostAtOnce);
  for (; index.num_indexed < end; ++index.num_indexed)
    index.ends[run_hash(tokens.first(index.num_indexed).last(kMatch))] =
        static_cast<int32_t>(index.num_indexed);
}

void NgramProposer::answer(DraftQuestion& question) {
  const auto tokens = question.sequence->tokens();
  if (tokens.size() <= kMatch) return;
  Index& index = indexes_[question.sequence->id()];
  extend(index, tokens);
  const auto last = tokens.last(kMatch);
  const auto found = index.ends.find(run_hash(last));
  if (found == index.ends.end()) return;
  const auto end = static_cast<size_t>(found->second);
  if (!std::ranges::equal(tokens.first(end).last(kMatch), last)) return;  // only its hash is equal
  // What repeats with a short period goes on from the guesses themselves.
  std::vector<TokenId>& drafts = question.drafts;
  for (size_t at = end; drafts.size() < static_cast<size_t>(question.most); ++at)
    drafts.push_back(at < tokens.size() ? tokens[at] : drafts[at - tokens.size()]);
}

}  // namespace nereid::runtime
