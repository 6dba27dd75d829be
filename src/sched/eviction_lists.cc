// EvictionLists: circular lists in one array, and a bitmap of non-empty lists.
#include "sched/eviction_lists.h"

#include <bit>

#include "base/check.h"

namespace nereid::sched {

EvictionLists::EvictionLists(BlockId first, int32_t count)
    : first_(first), count_(count), links_(count + kNumLists), list_(count, kNowhere) {
  static_assert(kNumLists <= 128);
  for (int list = 0; list < kNumLists; ++list) links_[head(list)] = {head(list), head(list)};
  for (int32_t i = 0; i < count; ++i) push(first + i, kEmpty);
}

void EvictionLists::push(BlockId id, int list) {
  const int32_t i = id - first_, end = head(list);
  NEREID_CHECK(list_[i] == kNowhere);
  links_[i] = {.prev = links_[end].prev, .next = end};
  links_[links_[i].prev].next = i;
  links_[end].prev = i;
  list_[i] = static_cast<int8_t>(list);
  used_[list / 64] |= uint64_t{1} << (list % 64);
  ++sizes_[list];
  ++size_;
}

void EvictionLists::remove(BlockId id) {
  const int32_t i = id - first_;
  const int list = list_[i];
  NEREID_CHECK(list != kNowhere);
  links_[links_[i].prev].next = links_[i].next;
  links_[links_[i].next].prev = links_[i].prev;
  list_[i] = kNowhere;
  if (--sizes_[list] == 0) used_[list / 64] &= ~(uint64_t{1} << (list % 64));
  --size_;
}

BlockId EvictionLists::victim() const {
  if (size_ == 0) return kNoBlock;
  const int list = used_[0] != 0 ? std::countr_zero(used_[0]) : 64 + std::countr_zero(used_[1]);
  return first_ + links_[head(list)].next;
}

void EvictionLists::check() const {
  int32_t total = 0;
  for (int list = 0; list < kNumLists; ++list) {
    int32_t found = 0;
    for (int32_t i = links_[head(list)].next; i != head(list); i = links_[i].next) {
      NEREID_CHECK(i < count_ && list_[i] == list && links_[links_[i].next].prev == i);
      NEREID_CHECK(++found <= sizes_[list]);
    }
    NEREID_CHECK(found == sizes_[list]);
    NEREID_CHECK((found > 0) == ((used_[list / 64] >> (list % 64) & 1) != 0));
    total += found;
  }
  NEREID_CHECK(total == size_);
}

}  // namespace nereid::sched
