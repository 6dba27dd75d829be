// Who holds which KV block, and which cached blocks can be found again, on the device and in the
// host pool. Ids only: the bytes live in exec, which executes the copies that are asked for here.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "nereid/stats.h"
#include "sched/block_group.h"
#include "sched/cache_events.h"
#include "sched/cache_group.h"
#include "sched/prefix_tree.h"
#include "sched/retention.h"
#include "sched/step_plan.h"

namespace nereid::sched {

struct PoolConfig {
  std::vector<CacheGroup> groups;     // see are_valid()
  int32_t tokens_per_block = 0;       // > 0
  bool enable_reuse = true;           // off: nothing is published and nothing matches
  bool enable_partial_reuse = true;   // leading tokens of a cached block are copied
  int32_t offload_min_priority = 30;  // evicted blocks below it are dropped; 0 to 100
  int32_t event_buffer_size = 0;      // events kept; 0 = none are made
};

// The blocks of one sequence in each group. Only the pool changes one.
struct BlockTable {
  // In position order; block i holds positions [i * T, (i + 1) * T).
  struct Group {
    std::vector<BlockId> blocks;  // kNoBlock: nothing that is still to come looks at it
    int32_t num_passed = 0;       // leading blocks that drop_unseen() has dealt with
    bool has_holes = false;
  };
  std::vector<Group> groups;  // empty: it holds nothing
  // Leading blocks whose contents the tree knows, and the node of the last of them (none: the
  // root).
  int32_t num_published = 0;
  NodeRef last;

  bool empty() const { return groups.empty(); }
  int64_t num_held() const;  // in all groups
};

// What an admission takes of one group, and what has to stay free beside it.
struct Claim {
  int32_t num_tokens = 0;  // positions to have blocks for
  int32_t headroom = 0;    // device blocks
};

// What the positions of a sequence hold. Views: valid during the call.
struct Contents {
  std::string_view root;            // bytes that the prefix belongs to: salt, adapter, media
  std::span<const BlockKey> keys;   // of its full blocks, chained from root_key(root)
  std::span<const TokenId> tokens;  // all that are known
  std::span<const InputKey> input_keys = {};          // of leading tokens
  const KvCacheRetentionConfig* retention = nullptr;  // null: defaults
  int32_t num_prompt = 0;                             // leading tokens that are the prompt

  TokenRun run() const { return {tokens, input_keys}; }
};

// The cached blocks that begin like some contents; valid until the pool changes. Every group can go
// on from its end: a windowed one still has the blocks that its window, and the sinks, reach.
struct PrefixHit {
  std::vector<BlockId> blocks;  // of group 0, from position 0 on; may be host blocks
  NodeRef last;                 // the node of the last of them
  NodeRef partial;              // a node of whose block the leading tokens match, or none
  int32_t num_tokens = 0;       // positions that need not be computed
  int32_t num_missed = 0;       // full blocks that were looked up and not found

  int32_t num_reused() const { return static_cast<int32_t>(blocks.size()) + partial.valid(); }
};

// Since construction, of all groups together; but a block of a prompt counts once as reused, or
// missed, when the prompt is set up (admit).
struct PoolStats {
  int64_t alloc_total = 0;  // device blocks taken; a hit on the device takes none
  int64_t alloc_new = 0;    // of these, without the ones that host blocks came back into
  int64_t reused = 0;       // cached blocks that a prompt could use, partly matching ones included
  int64_t missed = 0;       // full prompt blocks that had to be computed
  int64_t offloaded = 0, onboarded = 0;  // moved to and from the host pool
  int64_t copied = 0;                    // copies for partial reuse and on write
};

// What becomes of a released sequence's blocks that no other sequence holds.
enum class Release : uint8_t {
  kKeep,     // cached on the device while there is room
  kForget,   // the contents are suspect and must not be found again
  kOffload,  // a paused sequence: what is published moves to the host pool now, as far as it fits
};

// Groups of blocks, on two levels each, under one tree of contents. A block without a holder is
// free and keeps its contents until it is taken, so the free blocks, in order of retention priority
// and then of age, are also the cache, and taking one is the eviction; the victim's contents may
// move to the host pool. Each operation costs O(1) for each block it touches, O(log) for blocks
// with a duration.
//
// Group 0, which looks back furthest, carries the tree: a node is there exactly as long as its
// block in group 0. The other groups have a block of it, or none.
//
// Copies are collected in the order in which they must run (take_copies): whatever was taken or
// written after one was asked for must come after it on the device. Those from the host pool are
// collected apart (take_onboards): only the tables that hold their blocks wait for them.
class BlockPool {
 public:
  explicit BlockPool(const PoolConfig& config);

  // The longest run of leading blocks of `contents.tokens` that are cached. The caller leaves out
  // the tokens that it wants to compute anyway, at least the last one. No side effect.
  PrefixHit match(const Contents& contents) const;

  // Gives the empty `table` the hit's blocks and fresh ones up to `claims[g].num_tokens` positions
  // in each group g, if that leaves the headroom; otherwise changes nothing and returns false. A
  // windowed group, but for group 0, takes of the hit only what it still sees. Host blocks are
  // brought back, a partial hit is copied; see is_arriving(). The hit's blocks take the retention
  // of `contents`. num_tokens >= hit.num_tokens.
  bool admit(BlockTable& table, const PrefixHit& hit, const Contents& contents,
             const std::vector<Claim>& claims);

  // Grows `table` to hold `num_tokens` positions, of which [first_written, num_tokens) will be
  // written: blocks there that others hold too are replaced by copies. False and no change when
  // blocks of any group are short.
  bool reserve(BlockTable& table, int32_t first_written, int32_t num_tokens);

  // A table of the same first blocks, up to `num_tokens` positions, held once more. Both sides go
  // on writing through reserve(). Earlier steps than the one being planned must write all of these
  // positions, because copies on write are made before anything of the step is computed.
  BlockTable fork(const BlockTable& table, int32_t num_tokens);

  // Windowed groups give back the blocks that no position from `num_computed` on sees; they become
  // holes. Behind a hole of group 0 nothing more of the table is published.
  void drop_unseen(BlockTable& table, int32_t num_computed);

  // Gives back the blocks behind position `num_tokens`: what was written there is not wanted. None
  // of them may have been published.
  void trim(BlockTable& table, int32_t num_tokens);

  // Makes the full blocks below position `num_computed` findable; call only once the device has
  // written them. When equal contents are known already they stay the ones that are found. Tables
  // never change ids.
  void publish(BlockTable& table, const Contents& contents, int32_t num_computed);

  // The same, and the block that `num_computed` ends in. For the end of a sequence: a later
  // holder of the block must not write below num_computed.
  void publish_tail(BlockTable& table, const Contents& contents, int32_t num_computed);

  // Gives everything back, tail first, so that shared prefixes outlive private suffixes.
  void release(BlockTable& table, Release how);

  // After a device failure: no block's present contents will ever be found again.
  void forget_everything();

  // Tells the time, once before each step: what was kept for a duration that has passed falls back
  // to the default priority.
  void expire(Time now);

  // The copies asked for since the last call, but for those from the host pool. They must run in
  // this order, before the rows of the next step.
  std::vector<BlockCopy> take_copies() { return std::exchange(copies_, {}); }

  // The copies from the host pool asked for since the last call. They must run after all copies
  // taken so far, in this order. Their blocks keep still until end_onboards().
  std::vector<BlockCopy> take_onboards();
  bool has_onboards() const { return !onboards_.empty(); }  // not taken yet
  // The copies of the first take_onboards() that gave some and has not been ended are over. Not ok:
  // what they should have written is not found any more, and suspect.
  void end_onboards(bool ok);
  // Whether it holds blocks whose copies from the host pool are not over: nothing may read or write
  // them, and none of them may be given back.
  bool is_arriving(const BlockTable& table) const;
  bool any_suspect(const BlockTable& table) const;
  std::vector<KvCacheEvent> take_events() { return events_.take(); }
  const PoolStats& stats() const { return stats_; }

  // Checks the counts of each group's levels: free + held == total, `num_held` references in all
  // groups, each list holds what it should, every node has its blocks, its parent and its place in
  // the index.
  void check(int64_t num_held) const;

  int32_t blocks_for(int32_t num_tokens) const {
    return (num_tokens + tokens_per_block_ - 1) / tokens_per_block_;
  }
  int32_t tokens_per_block() const { return tokens_per_block_; }
  size_t num_groups() const { return groups_.size(); }
  const BlockGroup& group(size_t g) const { return groups_[g]; }
  int32_t num_free(size_t g) const { return groups_[g].num_free(); }  // cached ones included
  int32_t num_cached() const { return tree_.num_nodes(); }            // of group 0, on both levels

 private:
  // block_pool.cc: holders
  template <class Is>
  bool any_block(const BlockTable& table, Is is) const;
  bool has_room(size_t g, std::span<const NodeId> path, const PrefixHit& hit,
                const Claim& claim) const;
  bool takes(size_t g, size_t block, int32_t num_tokens) const;
  void admit_group(size_t g, BlockTable& table, std::span<const NodeId> path, const PrefixHit& hit,
                   BlockId partial, const Contents& contents);
  BlockId take(size_t g);
  BlockId take_partial(size_t g, BlockId from);
  size_t num_missing(size_t g, const BlockTable& table, int32_t first_written,
                     int32_t num_tokens) const;
  void grow(size_t g, BlockTable& table, int32_t first_written, int32_t num_tokens);
  void make_writable(size_t g, BlockTable& table, size_t index, int32_t first_written);

  // block_cache.cc: contents
  TokenRun run_of(const Contents& contents, size_t block) const;
  size_t num_served(std::span<const NodeId> path) const;
  NodeId store(const BlockTable& table, const Contents& contents, int32_t num_tokens);
  void attach_all(NodeId node, const BlockTable& table, const Contents& contents);
  void detach(size_t g, BlockId id);
  void retain(size_t g, BlockId id, const Retention& retention);
  void offload(size_t g, BlockId id);
  void offload_table(size_t g, const BlockTable& table);
  BlockId onboard(size_t g, BlockId from);
  void copy_from_host(size_t g, BlockId from, BlockId to);
  bool is_arriving(const Node& node) const;
  void move(size_t g, BlockId from, BlockId to);
  BlockId take_host(size_t g, int32_t up_to_priority);
  void forget(NodeId top);
  void tell_updated(size_t g, BlockId id);

  const PoolConfig config_;
  const int32_t tokens_per_block_;
  std::vector<BlockGroup> groups_;
  PrefixTree tree_;
  std::vector<BlockCopy> copies_, onboards_;
  std::deque<std::vector<BlockCopy>> arriving_;  // taken and not ended
  CacheEvents events_;
  PoolStats stats_;
  Time now_{};
  std::vector<RemovedNode> removed_;  // scratch of forget()
};

}  // namespace nereid::sched
