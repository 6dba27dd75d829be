// KV cache of a draft model or draft head: a block pool of its own, by sequence.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exec/runner.h"
#include "exec/step_message.h"
#include "sched/block_pool.h"

namespace nereid::runtime {

class DraftCache {
 public:
  // `copies_blocks`: a prefix hit may end inside a block, which is copied.
  DraftCache(const exec::Runner& runner, bool copies_blocks);

  // The text of a sequence as the draft model sees it.
  struct Text {
    std::string_view root;            // see sched::Contents
    std::span<const TokenId> tokens;  // known tokens, one per position
    int32_t num_prompt = 0;           // leading tokens that are the prompt
  };

  struct Entry {
    sched::BlockTable table;
    std::vector<TokenId> tokens;  // tokens with keys and values
    size_t num_known = 0;         // leading tokens of `tokens` that stay
    size_t num_missing = 0;       // skipped positions; > 0: blocks are not shared
    std::string root;             // see sched::Contents
    int32_t num_prompt = 0;
    std::vector<sched::BlockKey> keys;
    uint64_t asked_at = 0;  // num_calls_ of the last call that used it
  };

  // Starts a call of the proposer; entries used in it are not evicted until the next.
  void begin_call() { ++num_calls_; }

  // The entry of a sequence; a new one has the cached prefix of its text but the last position.
  Entry& find(RequestId id, const Text& text);

  // Releases the positions behind the first `num_tokens`.
  void trim(Entry& entry, size_t num_tokens);

  // Blocks for `num_tokens` positions, of which [first_written, num_tokens) will be written; evicts
  // entries that this call has not used.
  bool reserve(sched::BlockTable& table, int32_t first_written, int32_t num_tokens);
  bool reserve(Entry& entry, int32_t num_tokens) {
    return reserve(entry.table, static_cast<int32_t>(entry.tokens.size()), num_tokens);
  }

  // A table that shares the first `num_tokens` positions, written by earlier steps (copy on write).
  // Released by drop().
  sched::BlockTable fork(const sched::BlockTable& table, int32_t num_tokens) {
    return pool_.fork(table, num_tokens);
  }
  void drop(sched::BlockTable& table) { pool_.release(table, sched::Release::kKeep); }

  // Publishes the full blocks of known tokens, and releases blocks to which no later row attends.
  void publish(Entry& entry);

  // Adds a row with its tokens and the table's blocks.
  void add_row(const sched::BlockTable& table, exec::StepRow row, std::span<const TokenId> tokens,
               exec::StepMessage& step) const;
  // Adds the pool's copies since the last step.
  void add_copies(exec::StepMessage& step);

  // The sequence has ended: its known tokens stay cached.
  void forget(RequestId id);
  void forget_all();  // the prefix cache included

  bool holds(RequestId id) const { return entries_.contains(id); }
  int32_t num_free_blocks() const { return pool_.num_free(0); }  // of the first cache group

 private:
  void add_keys(Entry& entry, std::span<const TokenId> tokens) const;
  sched::Contents known(Entry& entry) const;
  void release(Entry& entry);
  bool give_up_oldest();

  sched::BlockPool pool_;
  std::map<RequestId, std::unique_ptr<Entry>>
      entries_;  // ordered by id, so that eviction is deterministic
  uint64_t num_calls_ = 0;
};

}  // namespace nereid::runtime
