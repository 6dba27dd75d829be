// Drafts from an EAGLE head on the hidden states of the model that tests them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "exec/runner.h"
#include "exec/step_message.h"
#include "io/engine_file.h"
#include "runtime/draft_cache.h"
#include "runtime/speculation.h"

namespace nereid::runtime {

// The rows of a model's embedding table, in host memory.
class EmbeddingRows {
 public:
  // InvalidArgument: the engine has no table.
  static StatusOr<EmbeddingRows> open(const std::filesystem::path& engine);

  void add(TokenId token, std::vector<BF16>& out) const;
  int32_t width() const { return static_cast<int32_t>(table_.k); }

 private:
  explicit EmbeddingRows(io::EngineFile file) : file_(std::move(file)) {}
  io::EngineFile file_;
  kernels::WeightView table_;
};

// A chain of guesses (models/eagle.h). The head has a KV cache of its own: position t is the state
// of position t with the token behind it, and the last of them draws the first guess. Each further
// one comes from the state that the head has predicted; those positions are computed again from the
// model's states when it has tested them.
//
// States come as steps land. Positions whose states never came, since the model found them in its
// prefix cache or had no room for them in a step, are left out where the head has not cached them
// either, all but the last of them: guesses hold less often then. (The scheduler has the last
// position of a cached prefix computed again, see Limits::renews_last_cached, so that where the
// head has cached the prefix, too, nothing is missing.)
//
// Drafts are drawn with the parameters, the seed and the positions of the sequence itself, as those
// of DraftModel.
class EagleHead : public Proposer {
 public:
  // A runner whose embeddings are as wide as two rows of `rows`, with the vocabulary of the model
  // that tests the drafts, and with as many rows.
  EagleHead(std::unique_ptr<exec::Runner> runner, EmbeddingRows rows);

  std::string_view name() const override { return "eagle"; }
  void propose(std::span<DraftQuestion> questions) override;
  void forget(RequestId id) override;
  std::vector<exec::MemoryItem> memory() const override;
  States wanted_states() const override { return States::kAll; }
  void landed(const sched::Row& row, const exec::RowResult& result) override;

 private:
  // States of positions [first, end()) that are not computed yet.
  struct Waiting {
    size_t first = 0;
    std::vector<BF16> states;
  };
  // Its place is its slot.
  struct Row {
    DraftQuestion* question = nullptr;
    DraftCache::Entry* entry = nullptr;
    Waiting* waiting = nullptr;
    int32_t num_new = 0;      // positions that are computed from the model's states
    int32_t num_drafts = 0;   // 0: there are more of them to come
    bool ended = false;       // what is drawn from here on is no good
    std::vector<BF16> state;  // that the head has predicted last
  };

  size_t num_waiting(const Waiting& waiting) const { return waiting.states.size() / width_; }
  DraftCache::Text text_of(const sched::Sequence& sequence);
  void choose_rows(std::span<DraftQuestion> questions);
  void add_candidate(DraftQuestion& question);
  Status compute();
  StatusOr<exec::Ticket> launch(int32_t number);
  void add_first(size_t row);
  void add_next(size_t row, int32_t number);
  Status take(exec::Ticket& ticket, int32_t number);

  const std::unique_ptr<exec::Runner> runner_;
  const EmbeddingRows rows_of_tokens_;
  const size_t width_;
  DraftCache cache_;
  absl::flat_hash_map<RequestId, std::unique_ptr<Waiting>> waiting_;
  bool failed_ = false;  // and the log says so: there are no drafts any more
  // Of the call.
  std::string root_;
  std::vector<Row> candidates_;  // all that may have a row, with all of their positions
  std::vector<Row> rows_;
  std::vector<TokenId> given_;
  exec::Step step_;
  std::vector<std::byte> message_;
};

}  // namespace nereid::runtime
