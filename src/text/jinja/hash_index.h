// Look-up by hash in a list that keeps its own order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"

namespace nereid::text::jinja {

// Seeded per process: a client cannot send many keys with the same hash.
inline size_t hash_of_text(std::string_view text) {
  return absl::HashOf(absl::string_view(text.data(), text.size()));
}

// Positions of a list's entries by the hash of their keys: open addressing, linear probing. Single
// entries are never removed.
class HashIndex {
 public:
  static constexpr size_t kFew = 8;  // up to this size a list is searched without an index
  static constexpr size_t kNone = SIZE_MAX;
  static constexpr size_t kEntryBytes = 4 * sizeof(uint64_t);  // upper bound per entry

  // The position of an entry with `hash` for which `is_key` is true; kNone without one.
  template <class IsKey>
  size_t find(size_t hash, IsKey is_key) const {
    if (slots_.empty()) return kNone;
    const size_t mask = slots_.size() - 1;
    for (size_t at = hash & mask; slots_[at].used; at = (at + 1) & mask) {
      if (slots_[at].hash == short_hash(hash) && is_key(size_t{slots_[at].position})) {
        return slots_[at].position;
      }
    }
    return kNone;
  }

  void add(size_t hash, size_t position) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    ++count_;
    put({short_hash(hash), static_cast<uint32_t>(position), true});
  }

  void clear() {
    slots_.clear();
    count_ = 0;
  }

 private:
  struct Slot {
    uint32_t hash = 0;  // its lower bits
    uint32_t position : 31 = 0;
    bool used : 1 = false;
  };
  static uint32_t short_hash(size_t hash) { return static_cast<uint32_t>(hash); }

  void put(const Slot& slot) {
    const size_t mask = slots_.size() - 1;
    size_t at = slot.hash & mask;
    while (slots_[at].used) at = (at + 1) & mask;
    slots_[at] = slot;
  }

  void grow() {
    const std::vector<Slot> old = std::move(slots_);
    slots_ = std::vector<Slot>(old.empty() ? 4 * kFew : 2 * old.size());
    for (const Slot& slot : old) {
      if (slot.used) put(slot);
    }
  }

  std::vector<Slot> slots_;  // a power of two, at least half of them free
  size_t count_ = 0;
};

}  // namespace nereid::text::jinja
