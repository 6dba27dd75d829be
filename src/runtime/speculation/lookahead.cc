// Lookahead: draft tree, window and n-gram pool.
#include "runtime/speculation/lookahead.h"

#include <algorithm>
#include <utility>

#include "base/rng.h"
#include "runtime/sequence_payload.h"

namespace nereid::runtime {
namespace {

constexpr int32_t kRoot = exec::kNoParent;
constexpr int32_t kNoDraft = -2;
// Maximum number of known tokens whose n-grams one call adds; a long prompt takes several calls.
constexpr size_t kNgramsAtOnce = 4096;

// Adds draft `token` behind `parent`, or finds it; kNoDraft: no room.
int32_t add_draft(DraftQuestion& question, int32_t parent, TokenId token) {
  if (parent == kNoDraft) return kNoDraft;
  std::vector<TokenId>& drafts = question.drafts;
  for (size_t i = 0; i < drafts.size(); ++i)
    if (question.parents[i] == parent && drafts[i] == token) return static_cast<int32_t>(i);
  if (drafts.size() == static_cast<size_t>(question.most)) return kNoDraft;
  drafts.push_back(token);
  question.parents.push_back(parent);
  return static_cast<int32_t>(drafts.size()) - 1;
}

}  // namespace

// The first window row consists of random prompt tokens.
Lookahead::State& Lookahead::state_of(const sched::Sequence& sequence) {
  const auto [found, is_new] = states_.try_emplace(sequence.id());
  State& state = found->second;
  if (!is_new) return state;
  state.config = payload_of(sequence.spec()).lookahead.value_or(config_);
  const auto prompt = sequence.tokens().first(static_cast<size_t>(sequence.num_prompt()));
  Tokens& row = state.window.emplace_back();
  for (int32_t column = 0; column < state.config.window_size; ++column) {
    const TokenId token = prompt[philox(prompt.size(), static_cast<uint64_t>(column))[0] %
                                 static_cast<uint32_t>(prompt.size())];
    row.push_back(token < vocab_size_ ? token : 0);
  }
  return state;
}

void Lookahead::answer(DraftQuestion& question) {
  const auto known = question.sequence->tokens();
  State& state = state_of(*question.sequence);
  if (state.config.ngram_size == 1) return;
  pool_known(state, known);
  if (const auto found = state.pool.find(known.back()); found != state.pool.end())
    for (const Tokens& candidate : found->second)
      for (int32_t node = kRoot; const TokenId token : candidate)
        node = add_draft(question, node, token);
  state.num_known = known.size();
  state.ends.clear();
  for (int32_t column = 0, first = kRoot; column < state.config.window_size; ++column) {
    const auto at = static_cast<size_t>(column);
    if (column > 0) first = add_draft(question, first, state.window[0][at]);
    int32_t node = first;
    for (size_t row = 1; row < state.window.size(); ++row)
      node = add_draft(question, node, state.window[row][at]);
    state.ends.push_back(node);
  }
}

void Lookahead::pool_known(State& state, std::span<const TokenId> tokens) const {
  const auto length = static_cast<size_t>(state.config.ngram_size);
  const size_t end = std::min(tokens.size(), state.num_pooled + kNgramsAtOnce);
  for (; state.num_pooled < end; ++state.num_pooled) {
    if (state.num_pooled + 1 < length) continue;
    const auto ngram = tokens.first(state.num_pooled + 1).last(length);
    const bool is_text =
        std::ranges::all_of(ngram, [this](TokenId token) { return token < vocab_size_; });
    if (is_text) keep(state, ngram[0], Tokens(ngram.begin() + 1, ngram.end()));
  }
}

void Lookahead::keep(State& state, TokenId first, Tokens rest) {
  const auto most = static_cast<size_t>(state.config.verification_set_size);
  if (most == 0) return;
  std::vector<Tokens>& all = state.pool[first];
  auto place = std::ranges::find(all, rest);
  if (place == all.end()) {
    if (all.size() == most)
      all.back() = std::move(rest);
    else
      all.push_back(std::move(rest));
    place = all.end() - 1;
  }
  std::rotate(all.begin(), place, place + 1);
}

// The window advances if the step had room for all of it.
void Lookahead::completed(const sched::ScheduledRow& row, const exec::RowResult& result) {
  const auto found = states_.find(row.sequence->id());
  if (found == states_.end() || row.num_drafts == 0) return;
  State& state = found->second;
  const std::vector<int32_t> ends = std::exchange(state.ends, {});
  if (state.num_known != static_cast<size_t>(row.first_sampled())) return;
  Tokens next;
  for (const int32_t end : ends) {
    if (end == kNoDraft || end >= row.num_drafts) return;
    next.push_back(result.likeliest[static_cast<size_t>(end + 1)]);
    if (next.back() < 0) return;
  }
  if (!next.empty()) move_window(state, row.sequence->tokens().back(), std::move(next));
}

// `last`: root of the draft tree, the last known token.
void Lookahead::move_window(State& state, TokenId last, Tokens row) {
  std::vector<Tokens>& window = state.window;
  window[0][0] = last;
  if (window.size() + 1 == static_cast<size_t>(state.config.ngram_size)) {
    for (size_t column = 0; column < row.size(); ++column) {
      Tokens rest;
      for (size_t r = 1; r < window.size(); ++r) rest.push_back(window[r][column]);
      rest.push_back(row[column]);
      keep(state, window[0][column], std::move(rest));
    }
    window.erase(window.begin());
  }
  window.push_back(std::move(row));
}

}  // namespace nereid::runtime
