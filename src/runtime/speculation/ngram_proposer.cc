// NgramProposer: an incremental index of each sequence's runs of tokens.
#include "runtime/speculation/ngram_proposer.h"

#include <algorithm>

namespace nereid::runtime {
namespace {

// Maximum number of runs that one call adds; a long prompt takes several calls.
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

NgramProposer::NgramProposer(size_t pool_size) {
  if (pool_size > 0) pool_.emplace(pool_size);
}

// The last run is excluded: it is the key to look up.
void NgramProposer::extend(Index& index, std::span<const TokenId> tokens) {
  const size_t end = std::min(tokens.size(), index.num_indexed + kMostAtOnce);
  for (; index.num_indexed < end; ++index.num_indexed)
    index.ends[run_hash(tokens.first(index.num_indexed).last(kMatch))] =
        static_cast<int32_t>(index.num_indexed);
}

void NgramProposer::answer(DraftQuestion& question) {
  answer_from_own(question);
  if (pool_ && question.drafts.empty()) answer_from_pool(question);
}

void NgramProposer::answer_from_own(DraftQuestion& question) {
  const auto tokens = question.sequence->tokens();
  if (tokens.size() <= kMatch) return;
  Index& index = indexes_[question.sequence->id()];
  extend(index, tokens);
  const auto last = tokens.last(kMatch);
  const auto found = index.ends.find(run_hash(last));
  if (found == index.ends.end()) return;
  const auto end = static_cast<size_t>(found->second);
  if (!std::ranges::equal(tokens.first(end).last(kMatch), last)) return;  // hash collision
  // A short period repeats: drafts continue from drafts.
  std::vector<TokenId>& drafts = question.drafts;
  for (size_t at = end; drafts.size() < static_cast<size_t>(question.most); ++at)
    drafts.push_back(at < tokens.size() ? tokens[at] : drafts[at - tokens.size()]);
}

// Each draft is looked up behind the previous ones.
void NgramProposer::answer_from_pool(DraftQuestion& question) {
  const auto tokens = question.sequence->tokens();
  if (tokens.size() < NgramPool::kRun) return;
  const uint64_t root = NgramPool::root_hash(question.sequence->spec().cache_salt);
  const auto last = tokens.last(NgramPool::kRun);
  tail_.assign(last.begin(), last.end());
  for (int32_t i = 0; i < question.most; ++i) {
    const auto next = pool_->find(root, std::span(tail_).last(NgramPool::kRun));
    if (!next) break;
    question.drafts.push_back(*next);
    tail_.push_back(*next);
  }
}

// Adds new text to the pool as it lands, to its last token.
void NgramProposer::completed(const sched::ScheduledRow& row, const exec::RowResult& result) {
  if (!pool_) return;
  const sched::Sequence& sequence = *row.sequence;
  const auto known = sequence.tokens();
  Source& source = sources_[sequence.id()];
  if (source.num_learned == 0) {
    source = {.root = NgramPool::root_hash(sequence.spec().cache_salt),
              .num_learned = NgramPool::kRun};
  }
  const size_t end = std::min(known.size(), source.num_learned + kMostAtOnce);
  for (; source.num_learned < end; ++source.num_learned)
    pool_->learn(source.root, known.first(source.num_learned).last(NgramPool::kRun),
                 known[source.num_learned]);
  if (source.num_learned != known.size() || result.drawn.empty() ||
      known.size() != static_cast<size_t>(row.first_sampled()))
    return;
  const auto last = known.last(NgramPool::kRun);
  tail_.assign(last.begin(), last.end());
  for (const kernels::SampleResult& drawn : result.drawn) {
    if (drawn.token < 0) return;
    pool_->learn(source.root, std::span(tail_).last(NgramPool::kRun), drawn.token);
    tail_.push_back(drawn.token);
    ++source.num_learned;
  }
}

void NgramProposer::forget(RequestId id) {
  indexes_.erase(id);
  sources_.erase(id);
}

}  // namespace nereid::runtime
