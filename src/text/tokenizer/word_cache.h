// A cache of the ids of short words.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace nereid::text {

// Direct-mapped: one entry for each hash, holding the last word. Words have at most 15 bytes and 3
// ids; others are not cached.
class WordCache {
 public:
  struct Entry {
    uint64_t low = 0, high = 0;  // bytes of the word; its length is in the top byte of `high`
    int32_t ids[3];
    uint32_t count = 0;
  };
  struct Key {
    uint64_t low, high;
  };
  static constexpr size_t kMaxWordBytes = 15;

  static bool fits(std::string_view word) { return word.size() - 1 < kMaxWordBytes; }

  // `word` must have at most 15 bytes. Reads no byte outside of it.
  static Key key_of(std::string_view word) {
    Key key{0, 0};
    const char* p = word.data();
    const size_t n = word.size();
    if (n >= 8) {
      std::memcpy(&key.low, p, 8);
      std::memcpy(&key.high, p + n - 8, 8);
      key.high = n == 8 ? 0 : key.high >> (8 * (16 - n));
    } else if (n >= 4) {
      uint32_t first, last;
      std::memcpy(&first, p, 4);
      std::memcpy(&last, p + n - 4, 4);
      key.low = first | static_cast<uint64_t>(last) << (8 * (n - 4));
    } else {
      const auto byte = [p](size_t i) { return static_cast<uint64_t>(static_cast<uint8_t>(p[i])); };
      key.low = byte(0) | byte(n / 2) << (8 * (n / 2)) | byte(n - 1) << (8 * (n - 1));
    }
    key.high |= static_cast<uint64_t>(n) << 56;
    return key;
  }

  // The entry for the word; find() checks it, keep() fills it.
  Entry& place(const Key& key) {
    if (entries_.empty()) entries_.resize(kEntries);
    const uint64_t mixed = (key.low ^ key.high * 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
    return entries_[mixed >> (64 - kEntryBits)];
  }
  static bool holds(const Entry& entry, const Key& key) {
    return entry.low == key.low && entry.high == key.high;
  }
  static void keep(Entry& entry, const Key& key, const int32_t* ids, size_t count) {
    if (count > 3) return;
    entry.low = key.low;
    entry.high = key.high;
    entry.count = static_cast<uint32_t>(count);
    for (size_t i = 0; i < count; ++i) entry.ids[i] = ids[i];
  }

 private:
  static constexpr int kEntryBits = 14;  // 512 KiB
  static constexpr size_t kEntries = size_t{1} << kEntryBits;
  std::vector<Entry> entries_;
};

}  // namespace nereid::text
