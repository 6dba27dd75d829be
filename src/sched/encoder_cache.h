// Results of encoder inputs by content: the blocks of cross attention's keys and values. Sequences
// with equal inputs share a result; results without a holder stay until their blocks are needed.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sched/step_plan.h"

namespace nereid::sched {

class EncoderCache {
 public:
  struct Entry {
    std::string key;
    int32_t length = 0;           // positions
    std::vector<BlockId> blocks;  // of these positions
    int32_t num_holders = 0;
    bool is_computed = false;   // by a planned step
    bool is_forgotten = false;  // not found again; its contents may be wrong
    bool is_private = false;    // given up with its last holder
  };

  EncoderCache(int32_t num_blocks, int32_t tokens_per_block);

  // The result of an input, with a holder more; a new one is not computed yet. Null: no room until
  // another one is released. `key`: equal for equal inputs only. `is_private`: a new one is given
  // up with its last holder.
  Entry* hold(std::string_view key, int32_t length, bool is_private = false);
  // Ends one holder's use.
  void release(Entry& entry);
  // No result is found again: a step that computed some has failed.
  void forget_everything();

  int64_t num_hits() const { return num_hits_; }
  int64_t num_misses() const { return num_misses_; }
  int32_t num_blocks() const { return num_blocks_; }
  int32_t num_holders() const;  // of all results
  // Ends the process unless free, cached and held blocks add up.
  void check() const;

 private:
  using Entries = std::list<Entry>;

  bool make_room(size_t num_blocks);
  void drop(Entries::iterator entry);

  const int32_t num_blocks_, tokens_per_block_;
  std::vector<BlockId> free_;
  Entries entries_;  // without holders: least recently released first
  absl::flat_hash_map<std::string_view, Entries::iterator> by_key_;  // not forgotten
  int64_t num_hits_ = 0, num_misses_ = 0;
};

}  // namespace nereid::sched
