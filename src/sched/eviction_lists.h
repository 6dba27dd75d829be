// Eviction order of the free blocks of one level.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sched/retention.h"
#include "sched/step_plan.h"

namespace nereid::sched {

// One list for blocks without contents and one per retention priority, each in order of release.
// The next block to evict is the oldest of the lowest non-empty list. Operations are O(1).
class EvictionLists {
 public:
  static constexpr int kEmpty = 0;
  static constexpr int list_for(int32_t priority) { return priority + 1; }

  // Blocks [first, first + count), all in the list kEmpty; the smallest id is the oldest.
  EvictionLists(BlockId first, int32_t count);

  void push(BlockId id, int list);  // appended as the youngest
  void remove(BlockId id);
  void move(BlockId id, int list) {
    remove(id);
    push(id, list);
  }

  BlockId victim() const;  // kNoBlock: no block is linked
  bool contains(BlockId id) const { return list_[id - first_] != kNowhere; }
  int list_of(BlockId id) const { return list_[id - first_]; }  // the block is linked
  int32_t size() const { return size_; }
  int32_t size_of(int list) const { return sizes_[list]; }

  void check() const;  // ends the process when links, sizes and the bitmap disagree

 private:
  static constexpr int kNumLists = kMaxRetention + 2;
  static constexpr int8_t kNowhere = -1;
  struct Link {
    int32_t prev = 0, next = 0;
  };

  int32_t head(int list) const { return count_ + list; }  // next: oldest, prev: youngest

  BlockId first_;
  int32_t count_;
  int32_t size_ = 0;
  std::vector<Link> links_;   // by block, then one head for each list
  std::vector<int8_t> list_;  // by block
  std::array<int32_t, kNumLists> sizes_{};
  std::array<uint64_t, 2> used_{};  // bit i: list i has a block
};

}  // namespace nereid::sched
