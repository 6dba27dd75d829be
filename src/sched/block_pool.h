// Who holds which KV block, and which cached blocks can be found again, on the device and in the
// host pool. Ids only: the bytes live in exec, which executes the copies that are asked for here.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "nereid/stats.h"
#include "sched/cache_events.h"
#include "sched/eviction_lists.h"
#include "sched/prefix_tree.h"
#include "sched/retention.h"
#include "sched/step_plan.h"

namespace nereid::sched {

struct PoolConfig {
  int32_t num_blocks = 0;        // of the device: ids [0, num_blocks); > 0
  int32_t num_host_blocks = 0;   // ids [num_blocks, num_blocks + num_host_blocks); 0 = no host pool
  int32_t tokens_per_block = 0;  // > 0
  bool enable_reuse = true;      // off: nothing is published and nothing matches
  bool enable_partial_reuse = true;   // leading tokens of a cached block are copied
  int32_t offload_min_priority = 30;  // evicted blocks below it are dropped; 0 to 100
  int32_t event_buffer_size = 0;      // events kept; 0 = none are made
};

// The blocks of one sequence in position order; block i holds positions [i * T, (i + 1) * T). Only
// the pool changes one.
struct BlockTable {
  std::vector<BlockId> blocks;  // kNoBlock: given back by drop_front()
  int32_t num_published = 0;    // leading blocks whose contents the tree knows
  int32_t num_passed = 0;       // leading blocks that drop_front() has dealt with
  bool has_holes = false;
  NodeRef last;  // the node of the last published block; none: the root
};

// What the positions of a sequence hold. Views: valid during the call.
struct Contents {
  std::string_view root;            // bytes that the prefix belongs to: salt, adapter, media
  std::span<const BlockKey> keys;   // of its full blocks, chained from root_key(root)
  std::span<const TokenId> tokens;  // all that are known
  const KvCacheRetentionConfig* retention = nullptr;  // null: defaults
  int32_t num_prompt = 0;                             // leading tokens that are the prompt
};

// The cached blocks that begin like some contents; valid until the pool changes.
struct PrefixHit {
  std::vector<BlockId> blocks;  // whole blocks from position 0 on; may be host blocks
  NodeRef last;                 // the node of the last of them
  NodeRef partial;              // a node of whose block the leading tokens match, or none
  int32_t num_tokens = 0;       // positions that need not be computed
  int32_t num_missed = 0;       // full blocks that were looked up and not found

  int32_t num_reused() const { return static_cast<int32_t>(blocks.size()) + partial.valid(); }
};

// Since construction. A block is reused, or missed, when a prompt is set up (admit).
struct PoolStats {
  int64_t alloc_total = 0;  // device blocks taken; a hit on the device takes none
  int64_t alloc_new = 0;    // of these, without the ones that host blocks came back into
  int64_t reused = 0;       // cached blocks that a prompt could use, partly matching ones included
  int64_t missed = 0;       // full prompt blocks that had to be computed
  int64_t offloaded = 0, onboarded = 0;  // moved to and from the host pool
  int64_t copied = 0;                    // copies for partial reuse and on write
};

// What becomes of a released sequence's blocks that nobody else holds.
enum class Release : uint8_t {
  kKeep,     // cached on the device while there is room
  kForget,   // the contents are suspect and must not be found again
  kOffload,  // a paused sequence: what is published moves to the host pool now, as far as it fits
};

// Two levels of blocks under one tree of contents. A block that nobody holds is free and keeps its
// contents until it is taken, so the free blocks, in order of retention priority and then of age,
// are also the cache, and taking one is the eviction; the victim's contents may move to the host
// pool. Each operation costs O(1) for each block it touches, O(log) for blocks with a duration.
//
// Copies are collected in the order in which they must run (take_copies): whatever was taken or
// written after one was asked for must come after it on the device.
class BlockPool {
 public:
  explicit BlockPool(const PoolConfig& config);

  // The longest run of leading blocks of `contents.tokens` that are cached. The caller leaves out
  // the tokens that it wants to compute anyway, at least the last one. No side effect.
  PrefixHit match(const Contents& contents) const;

  // Gives the empty `table` the hit's blocks and fresh ones up to `num_tokens` positions, if
  // `headroom` device blocks stay free after that; otherwise changes nothing and returns false.
  // Host blocks are brought back, a partial hit is copied. The hit's blocks take the retention of
  // `contents`. num_tokens >= hit.num_tokens.
  bool admit(BlockTable& table, const PrefixHit& hit, const Contents& contents, int32_t num_tokens,
             int32_t headroom);

  // Grows `table` to hold `num_tokens` positions, of which [first_written, num_tokens) will be
  // written: blocks there that others hold too are replaced by copies. False and no change when
  // blocks are short.
  bool reserve(BlockTable& table, int32_t first_written, int32_t num_tokens);

  // A table of the same first blocks, up to `num_tokens` positions, held once more. Both sides go
  // on writing through reserve(). Earlier steps than the one being planned must write all of these
  // positions, because copies on write are made before anything of the step is computed.
  BlockTable fork(const BlockTable& table, int32_t num_tokens);

  // Sliding window: gives back the blocks that lie wholly in [sink, num_positions); they become
  // holes, and nothing more of the table is published.
  void drop_front(BlockTable& table, int32_t num_positions, int32_t sink = 0);

  // Makes the full blocks below position `num_computed` findable; call only once the device has
  // written them. When equal contents are known already they stay the ones that are found. Tables
  // never change ids.
  void publish(BlockTable& table, const Contents& contents, int32_t num_computed);

  // The same, and the block that `num_computed` ends in. For the end of a sequence: whoever holds
  // the block later must not write below num_computed.
  void publish_tail(BlockTable& table, const Contents& contents, int32_t num_computed);

  // Gives everything back, tail first, so that shared prefixes outlive private suffixes.
  void release(BlockTable& table, Release how);

  // After a device failure: no block's present contents will ever be found again.
  void forget_everything();

  // Tells the time, once before each step: what was kept for a duration that has passed falls back
  // to the default priority.
  void expire(Time now);

  // The copies asked for since the last call. They must run in this order, before the rows of the
  // next step.
  std::vector<BlockCopy> take_copies() { return std::exchange(copies_, {}); }
  std::vector<KvCacheEvent> take_events() { return events_.take(); }
  const PoolStats& stats() const { return stats_; }

  // Proves the books of both levels: free + held == total, `num_held` references in all, each list
  // holds what it should, every node has its block, its parent and its place in the index.
  void check(int64_t num_held) const;

  int32_t blocks_for(int32_t num_tokens) const {
    return (num_tokens + tokens_per_block_ - 1) / tokens_per_block_;
  }
  int32_t tokens_per_block() const { return tokens_per_block_; }
  int32_t num_blocks() const { return config_.num_blocks; }
  int32_t num_free() const { return device_.size(); }  // cached blocks that nobody holds are free
  int32_t num_host_blocks() const { return config_.num_host_blocks; }
  int32_t num_host_free() const { return host_.size_of(EvictionLists::kEmpty); }
  int32_t num_cached() const { return tree_.num_blocks(); }  // of both levels

 private:
  struct Block {
    int32_t refs = 0;       // tables that hold it; always 0 in the host pool
    NodeId node = kNoNode;  // its published contents
    bool suspect = false;   // held, and not to be published
  };

  bool on_host(BlockId id) const { return id >= config_.num_blocks; }
  EvictionLists& level_of(BlockId id) { return on_host(id) ? host_ : device_; }

  // block_pool.cc: holders
  BlockId take();
  BlockId take_partial(NodeId node);
  void hold(BlockId id);
  void unhold(BlockId id);
  void make_writable(BlockTable& table, size_t index, int32_t first_written);

  // block_cache.cc: contents
  std::span<const TokenId> tokens_of(const Contents& contents, size_t block) const;
  NodeId store(const BlockTable& table, const Contents& contents, int32_t num_tokens);
  void link(BlockId id);
  void unlink(BlockId id);
  int list_of(BlockId id) const;
  void retain(NodeId id, const Retention& retention);
  void offload(NodeId node, int32_t up_to_priority);
  void offload_table(const BlockTable& table);
  void onboard(NodeId node);
  void move(NodeId id, BlockId to);
  BlockId take_host(int32_t up_to_priority);
  void forget(NodeId top);

  const PoolConfig config_;
  const int32_t tokens_per_block_;
  std::vector<Block> blocks_;  // of both levels
  EvictionLists device_;       // the free blocks of each level
  EvictionLists host_;
  PrefixTree tree_;
  ExpiryQueue expiries_;
  std::vector<BlockCopy> copies_;
  CacheEvents events_;
  PoolStats stats_;
  Time now_{};
  std::vector<RemovedNode> removed_;  // scratch of forget()
};

}  // namespace nereid::sched
