// Drafts from repeated text (prompt lookup).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "runtime/speculation/ngram_pool.h"
#include "runtime/speculation/speculation.h"

namespace nereid::runtime {

// Prompt lookup (Saxena 2023) in the sequence's own prompt and output: no model; pays where output
// repeats earlier text. With a pool, also in the texts of all sequences with the same root: pays
// where answers are similar.
class NgramProposer : public Proposer {
 public:
  static constexpr size_t kMatch = 3;  // length of a match

  // `pool_size`: runs in the pool; 0 = no pool.
  explicit NgramProposer(size_t pool_size = 0);

  std::string_view name() const override { return "ngram"; }
  void completed(const sched::ScheduledRow& row, const exec::RowResult& result) override;
  void propose(std::span<DraftQuestion> questions) override {
    for (DraftQuestion& question : questions) answer(question);
  }
  bool is_free() const override { return true; }
  void forget(RequestId id) override;

 private:
  // Last end of each run of kMatch tokens, by hash.
  struct Index {
    absl::flat_hash_map<uint64_t, int32_t> ends;
    size_t num_indexed = kMatch;  // runs that end below it are indexed
  };
  // A sequence whose text goes into the pool.
  struct Source {
    uint64_t root = 0;
    size_t num_learned = 0;  // leading tokens already in the pool
  };

  void answer(DraftQuestion& question);
  void answer_from_own(DraftQuestion& question);
  void answer_from_pool(DraftQuestion& question);
  static void extend(Index& index, std::span<const TokenId> tokens);

  absl::flat_hash_map<RequestId, Index> indexes_;
  std::optional<NgramPool> pool_;
  absl::flat_hash_map<RequestId, Source> sources_;
  std::vector<TokenId> tail_;  // reused memory: last known tokens and new ones
};

}  // namespace nereid::runtime
