#include "text/grammar/char_set.h"

#include <algorithm>
#include <string>

#include "text/unicode/utf8.h"

namespace nereid::text {
namespace {

constexpr char32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

}  // namespace

void CharSet::add(char32_t first, char32_t last) {
  last = std::min(last, kLast);
  if (first < kFirstSurrogate && last > kLastSurrogate) {
    add(first, kFirstSurrogate - 1);
    first = kLastSurrogate + 1;
  }
  if (first >= kFirstSurrogate && first <= kLastSurrogate) first = kLastSurrogate + 1;
  if (last >= kFirstSurrogate && last <= kLastSurrogate) last = kFirstSurrogate - 1;
  if (first > last) return;
  auto at = std::ranges::lower_bound(ranges_, first, {}, [](const auto& r) { return r.first; });
  if (at != ranges_.begin() && (at - 1)->second + 1 >= first) --at;
  auto end = at;
  for (; end != ranges_.end() && end->first <= last + 1; ++end) {
    first = std::min(first, end->first);
    last = std::max(last, end->second);
  }
  ranges_.insert(ranges_.erase(at, end), {first, last});
}

void CharSet::add(const CharSet& other) {
  for (const auto& [first, last] : other.ranges_) add(first, last);
}

CharSet CharSet::without(const CharSet& other) const {
  CharSet result;
  auto cut = other.ranges_.begin();
  for (auto [first, last] : ranges_) {
    while (cut != other.ranges_.end() && cut->second < first) ++cut;
    for (auto c = cut; c != other.ranges_.end() && c->first <= last && first <= last; ++c) {
      if (c->first > first) result.add(first, c->first - 1);
      first = c->second + 1;
    }
    if (first <= last) result.add(first, last);
  }
  return result;
}

bool CharSet::contains(char32_t c) const {
  return std::ranges::any_of(ranges_, [c](const auto& r) { return r.first <= c && c <= r.second; });
}

void utf8_ranges(char32_t first, char32_t last,
                 const std::function<void(const std::vector<ByteRange>&)>& emit) {
  // UTF-8 encodings of one length.
  for (const char32_t end : {0x7Fu, 0x7FFu, 0xFFFFu})
    if (first <= end && last > end) {
      utf8_ranges(first, end, emit);
      return utf8_ranges(end + 1, last, emit);
    }
  // Ranges in which the low bits take all values, or only the last byte differs.
  for (int bits = 6; bits <= 18 && last > 0x7F; bits += 6) {
    const char32_t low = (char32_t{1} << bits) - 1;
    if ((first & ~low) == (last & ~low)) break;
    if (first & low) {
      utf8_ranges(first, first | low, emit);
      return utf8_ranges((first | low) + 1, last, emit);
    }
    if ((last & low) != low) {
      utf8_ranges(first, (last & ~low) - 1, emit);
      return utf8_ranges(last & ~low, last, emit);
    }
  }
  std::string low, high;
  append_utf8(low, first);
  append_utf8(high, last);
  std::vector<ByteRange> bytes;
  for (size_t i = 0; i < low.size(); ++i)
    bytes.push_back({static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i])});
  emit(bytes);
}

}  // namespace nereid::text
