// One cache group of the paged KV cache: layers with the same attention window.
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

// Blocks of all groups hold the same number of positions. Ids are per group: device blocks [0,
// num_blocks), host blocks [num_blocks, num_blocks + num_host_blocks).
struct BlockGroupConfig {
  int32_t num_blocks = 0;       // > 0
  int32_t num_host_blocks = 0;  // 0 = no host pool
  int32_t window = 0;           // positions a token attends to, itself included; 0 = all
  int32_t sink = 0;             // attention sinks: leading positions visible beyond the window

  // The first position, sinks excluded, that tokens at positions >= `position` attend to.
  int32_t first_seen(int32_t position) const {
    return window == 0 ? 0 : std::max(0, position + 1 - window);
  }
};

// 1 to kMaxGroups groups, num_blocks > 0, the largest window first.
bool are_valid(const std::vector<BlockGroupConfig>& groups);

// One block per group, kNoBlock for indices >= number of groups.
using GroupBlocks = std::array<BlockId, kMaxGroups>;
inline constexpr GroupBlocks kNoBlocks = [] {
  GroupBlocks blocks{};
  blocks.fill(kNoBlock);
  return blocks;
}();

}  // namespace nereid::sched
