// The blocks of one cache group on both levels: reference counts, contents, eviction order.
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
  int32_t refs = 0;           // tables that hold the block; 0 in the host pool
  int32_t pins = 0;           // host-pool copies, not yet ended, that read or write the block
  NodeId node = kNoNode;      // published contents
  bool tainted = false;       // held, and not to be published
  Retention retention;        // of its contents
  Time expiry = Time::max();  // of the retention; below max: the block is in the expiry queue
};

// A free block is linked in an eviction list of its level; held blocks and pinned host blocks are
// in none. Operations are O(1), O(log n) for blocks with a duration.
class BlockGroup {
 public:
  explicit BlockGroup(const BlockGroupConfig& config);

  const BlockGroupConfig& config() const { return config_; }
  const Block& operator[](BlockId id) const { return blocks_[id]; }
  BlockId end() const { return static_cast<BlockId>(blocks_.size()); }  // ids of both levels
  bool on_host(BlockId id) const { return id >= config_.num_blocks; }
  int32_t num_free() const { return device_.size(); }
  int32_t most_held() const { return most_held_; }  // maximum since construction
  int32_t num_host_free() const { return host_.size_of(EvictionLists::kEmpty); }

  void hold(BlockId id);
  void unhold(BlockId id, Time now);  // the last reference; the block is not pinned
  // Keeps a block until its copy has ended. A device block must be held meanwhile.
  void pin(BlockId id);
  void unpin(BlockId id, Time now);
  void set_tainted(BlockId id) { blocks_[id].tainted = true; }

  // fill(): gives an empty block contents; clear(): removes them.
  void fill(BlockId id, NodeId node, const Retention& retention);
  void clear(BlockId id);
  void retain(BlockId id, const Retention& retention);  // the block is held

  // The block that is evicted next on a level; kNoBlock: no free block.
  BlockId victim() const { return device_.victim(); }
  BlockId host_victim() const { return host_.victim(); }

  // unlink(): takes the block out of its list. link(): appends it as the youngest; its retention
  // ends at `expiry`.
  void unlink(BlockId id);
  void link(BlockId id, Time expiry);
  Time expiry_from(BlockId id, Time now) const;  // expiry of a block released now

  // Resets one block whose retention ended at `now` to the default priority; no value: none.
  struct Expired {
    BlockId id;
    bool changes;  // the priority differed
  };
  std::optional<Expired> expire(Time now);

  // All blocks lose their contents; held ones become tainted.
  void forget_everything();

  // Ends the process when lists, references and expiries disagree; returns the reference count.
  int64_t check() const;

 private:
  EvictionLists& level_of(BlockId id) { return on_host(id) ? host_ : device_; }
  int list_of(const Block& block) const {
    return block.node == kNoNode ? EvictionLists::kEmpty
                                 : EvictionLists::list_for(block.retention.priority);
  }
  void stop_expiry(BlockId id);

  const BlockGroupConfig config_;
  std::vector<Block> blocks_;
  EvictionLists device_, host_;
  ExpiryQueue expiries_;
  int32_t most_held_ = 0;
};

}  // namespace nereid::sched
