// The blocks of one cache group on both levels: who holds them, what they contain, and the order in
// which the free ones are given away.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "sched/cache_group.h"
#include "sched/eviction_lists.h"
#include "sched/prefix_tree.h"
#include "sched/retention.h"

namespace nereid::sched {

struct Block {
  int32_t refs = 0;           // tables that hold it; always 0 in the host pool
  int32_t pins = 0;           // copies from the host pool, not yet ended, that read or write it
  NodeId node = kNoNode;      // its published contents
  bool suspect = false;       // held, and not to be published
  Retention retention;        // of its contents
  Time expiry = Time::max();  // of that; below max: in the expiry queue
};

// A block without a holder is linked in a list of its level; a held one is in none, nor is a host
// block that is pinned. All operations are O(1), O(log) for blocks with a duration.
class BlockGroup {
 public:
  explicit BlockGroup(const CacheGroup& config);

  const CacheGroup& config() const { return config_; }
  const Block& operator[](BlockId id) const { return blocks_[id]; }
  BlockId end() const { return static_cast<BlockId>(blocks_.size()); }  // of the ids of both levels
  bool on_host(BlockId id) const { return id >= config_.num_blocks; }
  int32_t num_free() const { return device_.size(); }
  int32_t most_held() const { return most_held_; }  // at a time, since construction
  int32_t num_host_free() const { return host_.size_of(EvictionLists::kEmpty); }

  void hold(BlockId id);
  void unhold(BlockId id, Time now);  // the last one: not while it is pinned
  // Keeps a block for a copy. A device block must be held as long.
  void pin(BlockId id);
  void unpin(BlockId id, Time now);
  void set_suspect(BlockId id) { blocks_[id].suspect = true; }

  // Contents: of a block without any; of one that loses them.
  void fill(BlockId id, NodeId node, const Retention& retention);
  void clear(BlockId id);
  void retain(BlockId id, const Retention& retention);  // of a block that is held

  // The first to be given away of a level; kNoBlock: the level is empty or all is held.
  BlockId victim() const { return device_.victim(); }
  BlockId host_victim() const { return host_.victim(); }

  // Out of its list, and back as the youngest; its retention ends at `expiry`.
  void unlink(BlockId id);
  void link(BlockId id, Time expiry);
  Time expiry_from(BlockId id, Time now) const;  // of what is released now

  // Takes one whose retention has run out at `now` back to the default; no value: there is none.
  struct Expired {
    BlockId id;
    bool changes;  // it had another priority
  };
  std::optional<Expired> expire(Time now);

  // No block has contents any more, and what is held is suspect.
  void forget_everything();

  // Ends the process when lists, references and expiries disagree; the number of references.
  int64_t check() const;

 private:
  EvictionLists& level_of(BlockId id) { return on_host(id) ? host_ : device_; }
  int list_of(const Block& block) const {
    return block.node == kNoNode ? EvictionLists::kEmpty
                                 : EvictionLists::list_for(block.retention.priority);
  }
  void stop_expiry(BlockId id);

  const CacheGroup config_;
  std::vector<Block> blocks_;
  EvictionLists device_, host_;
  ExpiryQueue expiries_;
  int32_t most_held_ = 0;
};

}  // namespace nereid::sched
