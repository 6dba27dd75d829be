// What a model that proposes drafts has cached of the sequences: a block pool of its own.
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
  // `copies_blocks`: what others have left may end within a block, which is copied then.
  DraftCache(const exec::Runner& runner, bool copies_blocks);

  // What the positions of a sequence stand for.
  struct Text {
    std::string_view root;            // see sched::Contents
    std::span<const TokenId> tokens;  // one for each position that is known
    int32_t num_prompt = 0;           // leading ones that are the prompt
  };

  struct Entry {
    sched::BlockTable table;
    std::vector<TokenId> tokens;  // whose keys and values are written
    size_t num_known = 0;         // of those, leading ones that stay
    size_t num_missing = 0;       // positions that were left out: no longer another one's text
    std::string root;             // see sched::Contents
    int32_t num_prompt = 0;
    std::vector<sched::BlockKey> keys;
    uint64_t asked_at = 0;  // the call that looked at it last
  };

  // A call of the proposer; what one looks at is kept until the next.
  void begin_call() { ++num_calls_; }

  // A sequence's entry; a new one begins with what others have left of its text, without the last
  // position.
  Entry& find(RequestId id, const Text& text);

  // Takes back what lies behind the first positions.
  void trim(Entry& entry, size_t num_tokens);

  // Blocks for so many positions, of which those from the first one on are to be written; if need
  // be those of entries that this call has not looked at.
  bool reserve(sched::BlockTable& table, int32_t first_written, int32_t num_tokens);
  bool reserve(Entry& entry, int32_t num_tokens) {
    return reserve(entry.table, static_cast<int32_t>(entry.tokens.size()), num_tokens);
  }

  // A table of the same first positions, which earlier steps have written; what either side writes
  // behind them is its own. To be given back by drop().
  sched::BlockTable fork(const sched::BlockTable& table, int32_t num_tokens) {
    return pool_.fork(table, num_tokens);
  }
  void drop(sched::BlockTable& table) { pool_.release(table, sched::Release::kKeep); }

  // Lets others find whole blocks of what is known, and gives back what no later row looks at.
  void publish(Entry& entry);

  // Adds the row, with its tokens and the table's blocks.
  void add_row(const sched::BlockTable& table, exec::StepRow row, std::span<const TokenId> tokens,
               exec::Step& step) const;
  // Adds the copies that the pool has asked for since the last step.
  void add_copies(exec::Step& step);

  // The sequence has ended: others find all that is known.
  void forget(RequestId id);
  void forget_all();  // and what was published

  bool holds(RequestId id) const { return entries_.contains(id); }
  int32_t num_free_blocks() const { return pool_.num_free(0); }  // of the first cache group

 private:
  void add_keys(Entry& entry, std::span<const TokenId> tokens) const;
  sched::Contents known(Entry& entry) const;
  void release(Entry& entry);
  bool give_up_oldest();

  sched::BlockPool pool_;
  std::map<RequestId, std::unique_ptr<Entry>>
      entries_;  // in an order that does not depend on hashes
  uint64_t num_calls_ = 0;
};

}  // namespace nereid::runtime
