// Lookahead decoding: drafts from n-grams that the target model computes in parallel.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "nereid/request.h"
#include "runtime/speculation/speculation.h"

namespace nereid::runtime {

// Maximum number of drafts of a sequence per step.
constexpr int32_t num_drafts(const LookaheadConfig& c) {
  const int32_t depth = c.ngram_size - 1;
  return depth == 0 ? 0 : depth - 1 + (c.window_size - 1 + c.verification_set_size) * depth;
}

// Lookahead decoding (Fu et al. 2024, "Break the Sequential Dependency of LLM Inference Using
// Lookahead Decoding"). The window has window_size columns (tokens for consecutive positions) and
// up to ngram_size - 1 rows. A token of the first row follows the tokens to its left, other tokens
// follow the one above: the window is a draft tree whose root, the last known token, is the first
// token of the first column. The argmax behind each column becomes the next row; each column
// becomes an n-gram, pooled by its first token. The last known token's n-grams are drafts too.
class Lookahead : public Proposer {
 public:
  // `config`: default of requests without their own. Tokens are in [0, vocab_size).
  Lookahead(const LookaheadConfig& config, int32_t vocab_size)
      : config_(config), vocab_size_(vocab_size) {}

  std::string_view name() const override { return "lookahead"; }
  bool makes_trees() const override { return true; }
  bool wants_likeliest() const override { return true; }
  int32_t usual_drafts() const override { return num_drafts(config_); }
  void completed(const sched::ScheduledRow& row, const exec::RowResult& result) override;
  void propose(std::span<DraftQuestion> questions) override {
    for (DraftQuestion& question : questions) answer(question);
  }
  void forget(RequestId id) override { states_.erase(id); }

 private:
  using Tokens = std::vector<TokenId>;

  struct State {
    LookaheadConfig config;
    // Token -> up to verification_set_size continuations of ngram_size - 1 tokens, newest first.
    absl::flat_hash_map<TokenId, std::vector<Tokens>> pool;
    size_t num_pooled = 0;       // known tokens whose n-grams are pooled
    std::vector<Tokens> window;  // rows; window[0][0] is the last known token
    // The last answer: number of known tokens, and by column the last draft (kNoDraft: no room).
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
