// Drafts without a second model: the model itself computes, beside its next token, what it would
// say at some places further on if guesses for those before them were right.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "nereid/request.h"
#include "runtime/speculation.h"

namespace nereid::runtime {

// Most drafts of a sequence in a step.
constexpr int32_t num_drafts(const LookaheadConfig& c) {
  const int32_t depth = c.ngram_size - 1;
  return depth == 0 ? 0 : depth - 1 + (c.window_size - 1 + c.verification_set_size) * depth;
}

// Lookahead decoding (Fu et al. 2024, "Break the Sequential Dependency of LLM Inference Using
// Lookahead Decoding"). A window has window_size columns, guesses for positions that follow each
// other, and up to ngram_size - 1 rows. A token of its first row comes after those to its left, the
// others after the one above; so the window is a tree of drafts, whose root, the last known token,
// is the first token of the first column. What the model finds likeliest behind each column becomes
// its next row, and its tokens an n-gram, which is kept with its first token. The n-grams that are
// kept with the last known token are drafts, too.
class Lookahead : public Proposer {
 public:
  // `config`: of requests that have none of their own. Tokens are in [0, vocab_size).
  Lookahead(const LookaheadConfig& config, int32_t vocab_size)
      : config_(config), vocab_size_(vocab_size) {}

  std::string_view name() const override { return "lookahead"; }
  bool makes_trees() const override { return true; }
  bool wants_likeliest() const override { return true; }
  int32_t usual_drafts() const override { return num_drafts(config_); }
  void landed(const sched::Row& row, const exec::RowResult& result) override;
  void propose(std::span<DraftQuestion> questions) override {
    for (DraftQuestion& question : questions) answer(question);
  }
  void forget(RequestId id) override { states_.erase(id); }

 private:
  using Tokens = std::vector<TokenId>;

  struct State {
    LookaheadConfig config;
    // What followed a token, ngram_size - 1 tokens each: at most verification_set_size, those seen
    // last first.
    absl::flat_hash_map<TokenId, std::vector<Tokens>> pool;
    size_t num_pooled = 0;       // known tokens whose n-grams are in it
    std::vector<Tokens> window;  // rows; of the first one the first token is the last known one
    // At the last answer: tokens known then, and for each column its last draft; kNoDraft: no room
    // was left for it.
    size_t num_known = 0;
    std::vector<int32_t> ends;
  };

  State& state_of(const sched::Sequence& sequence);
  void answer(DraftQuestion& question);
  void pool_known(State& state, std::span<const TokenId> tokens) const;
  static void keep(State& state, TokenId first, Tokens rest);
  static void move_window(State& state, TokenId last, Tokens row);

  const LookaheadConfig config_;
  const int32_t vocab_size_;
  absl::flat_hash_map<RequestId, State> states_;
};

}  // namespace nereid::runtime
