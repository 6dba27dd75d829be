// Paged KV cache by block ids: references, prefix cache, host pool. The bytes live in exec, which
// executes the copies collected here.
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
  std::vector<BlockGroupConfig> groups;  // see are_valid()
  int32_t tokens_per_block = 0;          // false: nothing is published, nothing matches
  bool enable_reuse = true;              // the leading tokens of a partly matching block are copied
  bool enable_partial_reuse = true;      // leading tokens of a cached block are copied
  int32_t offload_min_priority = 30;     // lower retention is not offloaded; 0 to 100
  int32_t event_buffer_size = 0;         // events kept; 0: none are built
};

// The block table of one sequence in each group. Only the pool changes it.
struct BlockTable {
  // In position order; block i holds positions [i * T, (i + 1) * T).
  struct Group {
    std::vector<BlockId> blocks;  // kNoBlock: no later row attends to it
    int32_t num_passed = 0;       // leading blocks that drop_unseen() has processed
    bool has_holes = false;
  };
  std::vector<Group> groups;  // empty: holds nothing
  // Leading blocks with a node in the tree, and the node of the last one (none: the root).
  int32_t num_published = 0;
  NodeRef last;

  bool empty() const { return groups.empty(); }
  int64_t num_held() const;  // in all groups
};

// Reservation of an admission in one group.
struct Reservation {
  int32_t num_tokens = 0;  // positions that get blocks
  int32_t headroom = 0;    // device blocks that stay free besides
};

// Tokens of a sequence and everything else that its KV depends on. Views: valid during the call.
struct Contents {
  std::string_view root;                      // cache salt: adapter, salt, media
  std::span<const BlockKey> keys;             // of its full blocks, chained from root_key(root)
  std::span<const TokenId> tokens;            // all known tokens
  std::span<const InputKey> input_keys = {};  // of the leading tokens
  const KvCacheRetentionConfig* retention = nullptr;  // null: defaults
  int32_t num_prompt = 0;                             // leading tokens that are the prompt

  TokenRun run() const { return {tokens, input_keys}; }
};

// The cached blocks of the longest matching prefix; valid until the pool changes. Every group can
// continue from its end: a windowed group has the blocks that its window and sinks cover.
struct PrefixHit {
  std::vector<BlockId> blocks;  // of group 0, from position 0; device or host blocks
  NodeRef last;                 // the node of the last of them
  NodeRef partial;              // node whose block matches in its leading tokens, or none
  int32_t num_tokens = 0;       // positions that need not be computed
  int32_t num_missed = 0;       // full blocks that were looked up without a match

  int32_t num_reused() const { return static_cast<int32_t>(blocks.size()) + partial.valid(); }
};

// Counts since construction, summed over groups; `reused`, `missed`: a prompt's blocks, at admit().
struct PoolStats {
  int64_t alloc_total = 0;  // device blocks taken, hits excluded
  int64_t alloc_new = 0;    // alloc_total minus those filled from the host pool
  int64_t reused = 0;       // cached blocks used by prompts, partly matching ones included
  int64_t missed = 0;       // full prompt blocks that had to be computed
  int64_t offloaded = 0, onboarded = 0;  // moved to and from the host pool
  int64_t copied = 0;                    // copies for partial reuse and on write
};

// Treatment of a released sequence's blocks without another holder.
enum class Release : uint8_t {
  kKeep,     // cached on the device until evicted
  kForget,   // contents are tainted and removed from the prefix cache
  kOffload,  // preempted sequence: published blocks move to the host pool, as far as it has room
};

// Paged KV cache of all groups on two levels (device, host pool) with one prefix tree. A block
// without a holder is free and keeps its contents until it is taken: the free blocks, ordered by
// retention priority and age, are the cache, and taking one evicts its contents, which may move to
// the host pool. Cost: O(1) per block, O(log n) for blocks with a duration.
//
// Group 0 has the largest window and carries the tree: a node exists exactly as long as its block
// in group 0. Each other group has one block of the node or none.
//
// take_copies() returns copies in execution order: a block taken or written after a copy was
// collected is written after it on the device. Copies from the host pool are separate
// (take_onboards): only tables with their blocks wait for them.
class BlockPool {
 public:
  explicit BlockPool(const PoolConfig& config);

  // The longest cached prefix of `contents.tokens`. The caller leaves out tokens that are computed
  // anyway, at least the last one. No side effect.
  PrefixHit match(const Contents& contents) const;

  // Gives the empty `table` the hit's blocks and new ones up to `reservations[g].num_tokens`
  // positions in each group g, or returns false without a change if the headroom would not stay
  // free. Windowed groups other than group 0 take the hit's blocks inside window and sinks. Host
  // blocks are onboarded (is_arriving()), a partial match is copied. The hit's blocks take the
  // retention of `contents`. num_tokens >= hit.num_tokens.
  bool admit(BlockTable& table, const PrefixHit& hit, const Contents& contents,
             const std::vector<Reservation>& reservations);

  // Extends `table` to `num_tokens` positions, of which [first_written, num_tokens) will be
  // written: shared blocks there are copied. False without a change when a group lacks blocks.
  bool reserve(BlockTable& table, int32_t first_written, int32_t num_tokens);

  // A table that shares the blocks of the first `num_tokens` positions. Both tables are written
  // through reserve() only. All shared positions must be written by steps before the one being
  // planned, because copies on write run before its rows.
  BlockTable fork(const BlockTable& table, int32_t num_tokens);

  // Releases the blocks of windowed groups to which no position >= num_computed attends; they
  // become holes. Behind a hole of group 0 nothing more of the table is published.
  void drop_unseen(BlockTable& table, int32_t num_computed);

  // Releases the blocks behind position `num_tokens` (rejected drafts); none may be published.
  void trim(BlockTable& table, int32_t num_tokens);

  // Publishes the full blocks below position `num_computed`, which the device must have written.
  // Contents that are cached already stay with their block. Block ids in tables never change.
  void publish(BlockTable& table, const Contents& contents, int32_t num_computed);

  // publish(), and the partly filled block that `num_computed` ends in, at the end of a sequence:
  // later holders of the block must not write below num_computed.
  void publish_tail(BlockTable& table, const Contents& contents, int32_t num_computed);

  // Releases all blocks, tail first, so that shared prefixes outlive private suffixes.
  void release(BlockTable& table, Release how);

  // After a device failure: removes all contents from the prefix cache.
  void forget_everything();

  // Called before each step: blocks whose retention has ended fall back to the default priority.
  void expire(Time now);

  // The copies collected since the last call, host-pool copies excluded; to be run in this order
  // before the rows of the next step.
  std::vector<PlanCopy> take_copies() { return std::exchange(copies_, {}); }

  // The host-pool copies collected since the last call; to be run in this order after all copies
  // taken so far. Their blocks stay pinned until end_onboards().
  std::vector<PlanCopy> take_onboards();
  bool has_onboards() const { return !onboards_.empty(); }  // collected and not taken
  // Ends the copies of the oldest take_onboards() result that is not empty. Not ok: the contents of
  // their device blocks are removed, and the blocks are tainted.
  void end_onboards(bool ok);
  // Whether the table has blocks whose host-pool copies have not ended: these must be neither read,
  // written nor released.
  bool is_arriving(const BlockTable& table) const;
  bool any_tainted(const BlockTable& table) const;
  std::vector<KvCacheEvent> take_events() { return events_.take(); }
  const PoolStats& stats() const { return stats_; }

  // The cached prefixes as runs of blocks of group 0, without an age. Bounded by the constants
  // of PrefixTreeOutline, whatever the size of the tree.
  PrefixTreeOutline outline() const;

  // Checks per group and level: free + held == total, `num_held` references in all groups, list
  // membership, and for each node its blocks, parent and index entry.
  void check(int64_t num_held) const;

  int32_t blocks_for(int32_t num_tokens) const {
    return (num_tokens + tokens_per_block_ - 1) / tokens_per_block_;
  }
  int32_t tokens_per_block() const { return tokens_per_block_; }
  size_t num_groups() const { return groups_.size(); }
  const BlockGroup& group(size_t g) const { return groups_[g]; }
  int32_t num_free(size_t g) const { return groups_[g].num_free(); }  // cached ones included
  int32_t num_cached() const { return tree_.num_nodes(); }  // blocks of group 0, both levels

 private:
  // block_pool.cc: references
  template <class Is>
  bool any_block(const BlockTable& table, Is is) const;
  bool has_room(size_t g, std::span<const NodeId> path, const PrefixHit& hit,
                const Reservation& reservation) const;
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
  std::vector<PlanCopy> copies_, onboards_;
  std::deque<std::vector<PlanCopy>> arriving_;  // taken and not ended
  CacheEvents events_;
  PoolStats stats_;
  Time now_{};
  std::vector<RemovedNode> removed_;  // scratch of forget()
};

}  // namespace nereid::sched
