// Sets of characters and their UTF-8 encodings.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace nereid::text {

// Unicode scalar values, as ascending ranges [first, last] with gaps between them.
class CharSet {
 public:
  CharSet() = default;
  CharSet(char32_t first, char32_t last) { add(first, last); }
  static CharSet all() { return {0, kLast}; }

  // Adds a range without surrogates and values above U+10FFFF.
  void add(char32_t first, char32_t last);
  void add(const CharSet& other);
  CharSet without(const CharSet& other) const;
  CharSet both(const CharSet& other) const { return without(all().without(other)); }

  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t c) const;
  const std::vector<std::pair<char32_t, char32_t>>& ranges() const { return ranges_; }

 private:
  static constexpr char32_t kLast = 0x10FFFF;
  std::vector<std::pair<char32_t, char32_t>> ranges_;
};

struct ByteRange {
  uint8_t first = 0, last = 0;
  auto operator<=>(const ByteRange&) const = default;
};

// Calls `emit` with sequences of byte ranges whose union is the UTF-8 encoding of the range.
void utf8_ranges(char32_t first, char32_t last,
                 const std::function<void(const std::vector<ByteRange>&)>& emit);

}  // namespace nereid::text
