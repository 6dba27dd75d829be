// One part of a model's KV cache: the layers that look equally far back.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "nereid/stats.h"
#include "sched/step_plan.h"

namespace nereid::sched {

inline constexpr size_t kMaxGroups = kMaxKvGroups;

// A block of any group holds the same number of positions; what it holds of each is the group's
// business. Block ids are per group: the device has [0, num_blocks), the host pool
// [num_blocks, num_blocks + num_host_blocks).
struct CacheGroup {
  int32_t num_blocks = 0;       // > 0
  int32_t num_host_blocks = 0;  // 0 = no host pool
  int32_t window = 0;           // positions a token sees, itself included; 0 = all
  int32_t sink = 0;             // leading positions that stay visible beyond the window

  // The first position, sinks aside, that a token at `position` or later sees.
  int32_t first_seen(int32_t position) const {
    return window == 0 ? 0 : std::max(0, position + 1 - window);
  }
};

// Whether the groups are 1 to kMaxGroups, all with blocks, the one that looks back furthest first.
bool are_valid(const std::vector<CacheGroup>& groups);

// A block of each group, kNoBlock beyond the number of groups.
using GroupBlocks = std::array<BlockId, kMaxGroups>;
inline constexpr GroupBlocks kNoBlocks = [] {
  GroupBlocks blocks{};
  blocks.fill(kNoBlock);
  return blocks;
}();

}  // namespace nereid::sched
