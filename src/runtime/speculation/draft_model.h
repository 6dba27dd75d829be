// Drafts from a second, smaller model on the same device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "exec/runner.h"
#include "exec/step_message.h"
#include "runtime/speculation/draft_cache.h"
#include "runtime/speculation/speculation.h"

namespace nereid::runtime {

// Speculative decoding with a draft model (Leviathan et al. 2023; Chen et al. 2023). Its own KV
// cache follows the tokens known to the host; positions of rejected drafts are recomputed.
//
// propose() runs, for all questions together, one step over the new known tokens, then one step per
// further draft, whose input token stays on the device. A prompt that does not fit into the first
// step continues in the next call.
//
// Drafts are sampled with the sequence's parameters, seed and positions (except masks, adapters and
// dense bias): where both models agree on probabilities they sample the same token.
class DraftModel : public Proposer {
 public:
  // A runner with the target model's vocabulary and number of rows.
  explicit DraftModel(std::unique_ptr<exec::Runner> runner);

  std::string_view name() const override { return "draft_model"; }
  void propose(std::span<DraftQuestion> questions) override;
  void forget(RequestId id) override { cache_.forget(id); }
  std::vector<exec::MemoryItem> memory() const override;
  double first_seconds() const override { return first_seconds_; }

  int32_t num_free_blocks() const { return cache_.num_free_blocks(); }

 private:
  // A question computed in this call; its index is its row and its slot.
  struct Row {
    DraftQuestion* question = nullptr;
    DraftCache::Entry* entry = nullptr;
    int32_t num_new = 0;     // known tokens computed now
    int32_t num_drafts = 0;  // 0: more known tokens remain
    bool ended = false;      // later samples are not used
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
  bool failed_ = false;  // logged; no more drafts
  // State of the current propose().
  double first_seconds_ = 0;
  std::vector<Row> candidates_;  // all possible rows, with all their new tokens
  std::vector<Row> rows_;
  exec::StepMessage step_;
  std::vector<std::byte> message_;
};

}  // namespace nereid::runtime
