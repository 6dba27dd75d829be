// Drafts from an EAGLE head on the target model's hidden states.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "exec/runner.h"
#include "exec/step_message.h"
#include "runtime/prompts/embedding_rows.h"
#include "runtime/speculation/draft_cache.h"
#include "runtime/speculation/draft_vocabulary.h"
#include "runtime/speculation/growing_tree.h"
#include "runtime/speculation/speculation.h"

namespace nereid::runtime {

// Input of the head per position: token embedding, the target model's states and, with has_own, the
// head's own state in a separate part; without has_own, it replaces the target model's.
struct HeadInput {
  std::string_view name = "eagle";          // see Proposer
  int32_t num_external = 1;                 // target model's states per position
  int32_t first_state = 0, num_states = 1;  // range of those that the head reads
  bool has_own = false;
  std::vector<TokenId> tokens;  // model token of each head token; empty: equal vocabularies
};

// A chain or tree of drafts from an EAGLE head (models/drafts/eagle.h, eagle3.h) or a similar layer
// (models/drafts/mtp.h). The head has its own KV cache: position t has the state of position t and
// the token behind it, and the last position yields the first candidates. Further candidates come
// from the head's predicted states; these positions are recomputed from the target model's states
// after the test. Branches share the blocks of their common prefix (copy on write).
//
// States arrive as steps land and are computed before the next plan, prompts chunk by chunk, at
// most max_tokens of the head at a time; waiting states are bounded for all sequences together
// (size_kv_cache() keeps chunks small). Positions without states (prefix hits, steps without room
// for them) are skipped, except the last of them, unless the head has cached them; skipping lowers
// the acceptance rate. With Limits::renews_last_cached the last position of a prefix hit has a
// state, so that nothing is missing if the head has cached the prefix too.
//
// The first candidate behind a token is sampled with the sequence's parameters, seed and position,
// as in DraftModel, and counts as the likeliest; the others follow by probability.
class EagleHead : public Proposer {
 public:
  // A runner with the embeddings of `input` (each part as wide as `rows`) and at least the target
  // model's number of rows; further rows are for tree branches. `vocab_size`: of the target.
  EagleHead(std::unique_ptr<exec::Runner> runner, EmbeddingRows rows, TreeShape shape,
            HeadInput input, int32_t vocab_size);

  std::string_view name() const override { return input_.name; }
  void follow(std::span<const sched::Sequence* const> running) override;
  void propose(std::span<DraftQuestion> questions) override;
  void forget(RequestId id) override;
  std::vector<exec::MemoryItem> memory() const override;
  double first_seconds() const override { return first_seconds_; }
  States wanted_states() const override { return States::kAll; }
  bool makes_trees() const override { return !shape_.is_chain(); }
  int32_t usual_drafts() const override { return shape_.is_chain() ? 0 : shape_.size(); }
  void completed(const sched::ScheduledRow& row, const exec::RowResult& result) override;

  size_t num_waiting() const { return num_waiting_; }  // positions with states waiting on the host

 private:
  // Inputs of positions [first, end()) that are not computed yet.
  struct Waiting {
    size_t first = 0;
    std::vector<BF16> states;
  };
  // A tree node being computed behind the positions of its path.
  struct Branch {
    int32_t node = GrowingTree::kRoot;       // kRoot: all new known positions
    std::vector<BF16> state;                 // predicted by the head at the parent
    std::optional<sched::BlockTable> table;  // none: the entry's table
  };
  struct Row {
    DraftQuestion* question = nullptr;
    DraftCache::Entry* entry = nullptr;
    Waiting* waiting = nullptr;
    int32_t num_new = 0;              // positions computed from the target model's states
    std::optional<GrowingTree> tree;  // none: more known positions remain
    std::vector<Branch> branches;     // of the current depth
  };

  size_t num_waiting(const Waiting& waiting) const { return waiting.states.size() / width_; }
  size_t most_waiting() const;  // positions, all sequences together
  void set_size(Waiting& waiting, size_t num_states);
  void drop_front(Waiting& waiting, size_t count);
  void answer(std::span<DraftQuestion> questions);
  DraftCache::Text text_of(const sched::Sequence& sequence);
  void choose_rows(std::span<DraftQuestion> questions);
  void add_candidate(DraftQuestion& question);
  Status compute(Time begin);
  StatusOr<exec::Ticket> launch();
  void add_first(Row& row);
  void add_next(const Row& row, const Branch& branch);
  void add_params(const Row& row, const Branch& branch);
  void add_zeros(int32_t num_states);
  Status take(exec::Ticket& ticket);
  void branch_out(Row& row);
  void drop(Branch& branch);

  const std::unique_ptr<exec::Runner> runner_;
  const EmbeddingRows rows_of_tokens_;
  const TreeShape shape_;
  const HeadInput input_;
  const int32_t vocab_size_;
  const std::optional<DraftVocabulary> vocabulary_;  // none: the target model's
  const int32_t num_ranks_;
  const size_t own_width_;  // of a state
  const size_t width_;      // of the target model's states that the head reads, per position
  DraftCache cache_;
  absl::flat_hash_map<RequestId, std::unique_ptr<Waiting>> waiting_;
  size_t num_waiting_ = 0;  // positions, all sequences together
  bool failed_ = false;     // logged; no more drafts
  // State of the current propose().
  double first_seconds_ = 0;
  std::string root_;
  std::vector<DraftQuestion> behind_;  // for follow(), which requests no drafts
  std::vector<Row> candidates_;        // all possible rows, with all their positions
  std::vector<Row> rows_;
  std::vector<TokenId> given_;
  std::vector<TokenCandidate> token_candidates_;
  exec::StepMessage step_;
  std::vector<std::byte> message_;
};

}  // namespace nereid::runtime
