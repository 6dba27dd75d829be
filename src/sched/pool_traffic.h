// Test only: sequences, steps and copies in flight in the fuzz test of the pool.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "sched/block_pool.h"

namespace nereid::sched {

inline constexpr uint64_t kGarbage = 0xBAD;  // in a cell that was never written

struct FuzzText {
  std::string root;
  std::vector<TokenId> tokens;
  std::vector<InputKey> input_keys;
  std::vector<BlockKey> keys;
  KvCacheRetentionConfig retention;

  Contents contents(size_t num_tokens) const {
    return {.root = root,
            .keys = keys,
            .tokens = std::span(tokens).first(num_tokens),
            .input_keys = input_keys,
            .retention = &retention,
            .num_prompt = static_cast<int32_t>(tokens.size() / 2)};
  }
  // Expected contents of position p of a group: a hash of everything they depend on.
  uint64_t cell(size_t group, int p) const {
    uint64_t before = hash64(root) + 1 + group;
    for (int i = 0; i <= p && i < static_cast<int>(input_keys.size()); ++i)
      before += (i + 1) * input_keys[i].low;
    return hash64(tokens.data(), (p + 1) * sizeof(TokenId), before);
  }
};

struct Seq {
  FuzzText text;
  BlockTable table;
  int computed = 0, completed = 0;  // planned; known to be written
  int earlier = 0;                  // computed by steps before the one being planned
  int inflight = 0;
  bool has_run = false;  // one of its rows has completed
  bool ending = false;
  Release how = Release::kKeep;
};

struct PlannedRow {
  Seq* seq;
  std::vector<BlockTable::Group> groups;
  int start, end;
};

struct PlannedStep {
  std::vector<PlanCopy> copies, onboards;
  std::vector<PlannedRow> rows;
};

// Host-pool copies that may run: those of the steps before them have ended.
struct HostCopies {
  std::vector<PlanCopy> copies;
  bool ok = true, made = false;
};

struct PoolTotals {
  PoolStats stats;
  int64_t forks = 0, failures = 0, swaps = 0, drops = 0, collisions = 0, holes = 0;
  int64_t late = 0, lost = 0;
};

}  // namespace nereid::sched
