// Drafts from an EAGLE head on the hidden states of the model that tests them.
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
#include "runtime/draft_cache.h"
#include "runtime/draft_vocabulary.h"
#include "runtime/embedding_rows.h"
#include "runtime/growing_tree.h"
#include "runtime/speculation.h"

namespace nereid::runtime {

// What a head gets of each position: its embeddings are the token's, the model's states, and where
// the head's own states have a place apart, that; else the head's own take the place of the model's
// one.
struct HeadInput {
  std::string_view name = "eagle";          // see Proposer
  int32_t num_given = 1;                    // states of a position that the model gives
  int32_t first_state = 0, num_states = 1;  // those of them that the head reads
  bool has_own = false;
  std::vector<TokenId> tokens;  // the model's, of each of the head's; empty: they are the same
};

// A chain or a tree of guesses of an EAGLE head (models/eagle.h, eagle3.h), or of a layer that is
// like one (models/mtp.h). The head has a KV cache of its own: position t is
// the state of position t with the token behind it, and the last of them gives the first guesses.
// Further ones come from the state that the head has predicted; those positions are computed again
// from the model's states when it has tested them. Guesses that share their beginning share its
// blocks, each goes on in blocks of its own.
//
// States come as steps land, and are computed from before the next step is planned, those of a
// prompt chunk by chunk, at most as many positions at a time as a step of the head has: what waits
// on the host is bounded for all sequences together (see size_kv_cache(), which keeps chunks
// small). Positions whose states never came, since the model found them in its prefix cache or had
// no room for them in a step, are left out where the head has not cached them either, all but the
// last of them: guesses hold less often then. (The scheduler has the last position of a cached
// prefix computed again, see Limits::renews_last_cached, so that where the head has cached the
// prefix, too, nothing is missing.)
//
// The first guess behind a token is drawn with the parameters, the seed and the position of the
// sequence itself, as the drafts of DraftModel, and counts as the likeliest; then come the
// likeliest others.
class EagleHead : public Proposer {
 public:
  // A runner whose embeddings are as `input` says, each part as wide as `rows`, with as many rows
  // as the model's at least. Branches of trees share what it has more. `vocab_size`: the model's.
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
  void landed(const sched::Row& row, const exec::RowResult& result) override;

  size_t num_waiting() const { return num_waiting_; }  // positions whose states wait on the host

 private:
  // What the head reads of positions [first, end()) that are not computed yet.
  struct Waiting {
    size_t first = 0;
    std::vector<BF16> states;
  };
  // A node of a tree that is computed, behind the positions of its path.
  struct Branch {
    int32_t node = GrowingTree::kRoot;       // the root: all that is new of what is known
    std::vector<BF16> state;                 // that the head has predicted in front of the node
    std::optional<sched::BlockTable> table;  // none: it has the entry's
  };
  struct Row {
    DraftQuestion* question = nullptr;
    DraftCache::Entry* entry = nullptr;
    Waiting* waiting = nullptr;
    int32_t num_new = 0;              // positions that are computed from the model's states
    std::optional<GrowingTree> tree;  // none: there are more of them to come
    std::vector<Branch> branches;     // of the depth that is computed
  };

  size_t num_waiting(const Waiting& waiting) const { return waiting.states.size() / width_; }
  size_t most_waiting() const;  // positions, of all sequences
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
  const std::optional<DraftVocabulary> vocabulary_;  // none: the model's
  const int32_t num_ranks_;
  const size_t own_width_;  // of a state
  const size_t width_;      // of what the head reads of the model's, of a position
  DraftCache cache_;
  absl::flat_hash_map<RequestId, std::unique_ptr<Waiting>> waiting_;
  size_t num_waiting_ = 0;  // positions of all of them
  bool failed_ = false;     // and the log says so: there are no drafts any more
  // State of the propose() under way.
  double first_seconds_ = 0;
  std::string root_;
  std::vector<DraftQuestion> behind_;  // of follow(): without drafts
  std::vector<Row> candidates_;        // all that may have a row, with all of their positions
  std::vector<Row> rows_;
  std::vector<TokenId> given_;
  std::vector<Guess> guesses_;
  exec::Step step_;
  std::vector<std::byte> message_;
};

}  // namespace nereid::runtime
