// Drafts from the sequence's own text: what came after the last few tokens where they stood before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "runtime/speculation.h"

namespace nereid::runtime {

// Prompt lookup (Saxena 2023): prompt and output of one sequence, never those of others. Needs no
// model; it pays where the output repeats the prompt or itself.
class NgramProposer : public Proposer {
 public:
  static constexpr size_t kMatch = 3;  // tokens that must be the same

  std::string_view name() const override { return "ngram"; }
  void propose(std::span<DraftQuestion> questions) override {
    for (DraftQuestion& question : questions) answer(question);
  }
  bool is_free() const override { return true; }
  void forget(RequestId id) override { indexes_.erase(id); }

 private:
  // Where each run of kMatch tokens ended last; the newest of runs with one hash.
  struct Index {
    absl::flat_hash_map<uint64_t, int32_t> ends;
    size_t num_indexed = kMatch;  // runs that end below are in it
  };

  void answer(DraftQuestion& question);
  static void extend(Index& index, std::span<const TokenId> tokens);

  absl::flat_hash_map<RequestId, Index> indexes_;
};

}  // namespace nereid::runtime
