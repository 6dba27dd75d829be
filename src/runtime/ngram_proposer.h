// Drafts from text: what came after the last few tokens where they stood before.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "runtime/ngram_pool.h"
#include "runtime/speculation.h"

namespace nereid::runtime {

// Prompt lookup (Saxena 2023) in prompt and output of the sequence itself. Needs no model; it pays
// where the output repeats the prompt or itself. With a pool, where the sequence's own text says
// nothing, what the texts of all sequences with the same root say: it pays where answers are alike.
class NgramProposer : public Proposer {
 public:
  static constexpr size_t kMatch = 3;  // tokens that must be the same

  // `pool_size`: runs of tokens of all sequences that are kept; 0 = no pool.
  explicit NgramProposer(size_t pool_size = 0);

  std::string_view name() const override { return "ngram"; }
  void landed(const sched::Row& row, const exec::RowResult& result) override;
  void propose(std::span<DraftQuestion> questions) override {
    for (DraftQuestion& question : questions) answer(question);
  }
  bool is_free() const override { return true; }
  void forget(RequestId id) override;

 private:
  // Where each run of kMatch tokens ended last; the newest of runs with one hash.
  struct Index {
    absl::flat_hash_map<uint64_t, int32_t> ends;
    size_t num_indexed = kMatch;  // runs that end below are in it
  };
  // Of a sequence whose text goes into the pool.
  struct Source {
    uint64_t root = 0;
    size_t num_learned = 0;  // its first tokens
  };

  void answer(DraftQuestion& question);
  void answer_from_own(DraftQuestion& question);
  void answer_from_pool(DraftQuestion& question);
  static void extend(Index& index, std::span<const TokenId> tokens);

  absl::flat_hash_map<RequestId, Index> indexes_;
  std::optional<NgramPool> pool_;
  absl::flat_hash_map<RequestId, Source> sources_;
  std::vector<TokenId> tail_;  // memory that is used again: last known tokens and new ones
};

}  // namespace nereid::runtime
