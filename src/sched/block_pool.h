// Who holds which KV block, and which free blocks still hold a reusable prefix. Ids only: the bytes
// live in exec.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "nereid/executor.h"
#include "sched/step_plan.h"

namespace nereid::sched {

// Chained hash of a full block's tokens and of all blocks before it; a hint only, every hit is
// compared by tokens.
using BlockKey = uint64_t;

// The blocks of one sequence in position order; block i holds positions [i * T, (i + 1) * T).
struct BlockTable {
  std::vector<BlockId> blocks;
  int32_t num_published = 0;  // leading blocks whose contents the pool knows
  uint64_t chain = 0;         // serial of the last of them; 0 = none
};

// The longest run of leading blocks found by match(); valid until the pool changes.
struct PrefixHit {
  std::vector<BlockId> blocks;
  uint64_t chain = 0;  // serial of the last block; 0 = none
};

// A free block keeps its contents and its key until it is taken again, so the free list, oldest
// first, is also the LRU list of the prefix cache, and taking a block is the eviction. Each
// operation costs O(1) per block it touches. Published blocks form a trie by serial: a hit needs
// equal tokens and an already verified parent, so that a colliding key can never hand out another
// prompt's blocks.
class BlockPool {
 public:
  // num_blocks and tokens_per_block > 0. Without reuse nothing is published and nothing matches.
  BlockPool(int32_t num_blocks, int32_t tokens_per_block, bool enable_reuse);

  // Leading blocks of `tokens` that are in the cache, at most keys.size(). No side effect.
  PrefixHit match(std::span<const BlockKey> keys, std::span<const TokenId> tokens) const;

  // Gives the empty `table` the hit's blocks and fresh ones up to `num_tokens` positions, if
  // `headroom` blocks stay free after that; otherwise changes nothing and returns false.
  bool admit(BlockTable& table, const PrefixHit& hit, int32_t num_tokens, int32_t headroom);

  // Grows `table` to hold `num_tokens` positions; false and no change when blocks are short.
  bool reserve(BlockTable& table, int32_t num_tokens);

  // Makes the full blocks below position `num_computed` findable; call only once the device has
  // written them. When equal contents are known already they stay the ones that are found. Tables
  // never change ids.
  void publish(BlockTable& table, std::span<const BlockKey> keys, std::span<const TokenId> tokens,
               int32_t num_computed);

  // Gives everything back, tail first, so that shared prefixes outlive private suffixes. `forget`:
  // the contents are suspect and must not be found again.
  void release(BlockTable& table, bool forget);

  // Proves the books: free + held == total, `num_held` references in all, every key leads to the
  // block that has it.
  void check(int64_t num_held) const;

  int32_t blocks_for(int32_t num_tokens) const {
    return (num_tokens + tokens_per_block_ - 1) / tokens_per_block_;
  }
  int32_t num_blocks() const { return static_cast<int32_t>(blocks_.size()) - 1; }
  int32_t num_free() const { return num_free_; }  // cached blocks that nobody holds are free
  int32_t num_cached() const { return static_cast<int32_t>(index_.size()); }
  int32_t tokens_per_block() const { return tokens_per_block_; }

 private:
  struct Block {
    int32_t refs = 0;  // tables that hold it; 0 = on the free list
    BlockId prev = 0;  // free list neighbours, valid while refs == 0
    BlockId next = 0;
    BlockKey key = 0;     // valid while serial != 0
    uint64_t serial = 0;  // names the published contents; 0 = not findable
    uint64_t parent = 0;  // serial of the block before it; 0 = first block of a prompt
  };

  BlockId take();
  void hold(BlockId id);
  void unlink(BlockId id);
  void link_before(BlockId id, BlockId next);
  void forget(BlockId id);
  bool holds(BlockId id, uint64_t parent, std::span<const TokenId> tokens, size_t index) const;

  const int32_t tokens_per_block_;
  const bool enable_reuse_;
  std::vector<Block> blocks_;  // the last one is the free list's head: next = oldest, prev = newest
  std::vector<TokenId>
      tokens_;  // [block, position in block]: what a published block was computed from
  absl::flat_hash_map<BlockKey, BlockId> index_;
  int32_t num_free_ = 0;
  uint64_t last_serial_ = 0;
};

}  // namespace nereid::sched
