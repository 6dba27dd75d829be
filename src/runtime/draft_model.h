// Drafts from a second, smaller model on the same device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "exec/runner.h"
#include "exec/step_message.h"
#include "runtime/draft_cache.h"
#include "runtime/speculation.h"

namespace nereid::runtime {

// Speculative decoding with a draft model (Leviathan et al. 2023; Chen et al. 2023). It has a KV
// cache of its own, whose positions follow the tokens that the host knows: what was computed for
// drafts that did not hold is computed again.
//
// One call computes, for all questions together, one step that catches up with the tokens known and
// then a step for each further draft, each token of which goes from one to the next on the device.
// A prompt that does not fit into the first step goes on in the next call.
//
// Drafts are drawn with the parameters, the seed and the positions of the sequence itself, as far
// as they are not masks, adapters or a dense bias: where both models agree on probabilities they
// draw the same token.
class DraftModel : public Proposer {
 public:
  // A runner of a model with the vocabulary of the one that tests its drafts, and with as many
  // rows.
  explicit DraftModel(std::unique_ptr<exec::Runner> runner);

  std::string_view name() const override { return "draft_model"; }
  void propose(std::span<DraftQuestion> questions) override;
  void forget(RequestId id) override { cache_.forget(id); }
  std::vector<exec::MemoryItem> memory() const override;
  double first_seconds() const override { return first_seconds_; }

  int32_t num_free_blocks() const { return cache_.num_free_blocks(); }

 private:
  // A question that this call computes something for; its place is its row and its slot.
  struct Row {
    DraftQuestion* question = nullptr;
    DraftCache::Entry* entry = nullptr;
    int32_t num_new = 0;     // known tokens that are computed now
    int32_t num_drafts = 0;  // 0: it has still more to catch up with
    bool ended = false;      // what is drawn from here on is not used
  };

  DraftCache::Entry& entry_of(const sched::Sequence& sequence);
  void choose_rows(std::span<DraftQuestion> questions);
  Status compute(Time begin);
  StatusOr<exec::Ticket> launch(int32_t number);
  void add_first(size_t row);
  void add_next(size_t row, int32_t number);
  void add_row(size_t row, std::span<const TokenId> tokens, int32_t start, bool samples);
  Status take(exec::Ticket& ticket, int32_t number);

  const std::unique_ptr<exec::Runner> runner_;
  DraftCache cache_;
  bool failed_ = false;  // and the log says so: there are no drafts any more
  // State of the propose() under way.
  double first_seconds_ = 0;
  std::vector<Row> candidates_;  // all that may have a row, with all of their new tokens
  std::vector<Row> rows_;
  exec::Step step_;
  std::vector<std::byte> message_;
};

}  // namespace nereid::runtime
