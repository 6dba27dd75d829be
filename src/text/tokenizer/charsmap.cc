#include "text/tokenizer/charsmap.h"

#include <algorithm>
#include <cstring>

#include "base/base64.h"
#include "text/unicode/utf8.h"

namespace nereid::text {

namespace {

// Bounds for hostile maps: real keys and replacements have some ten bytes.
constexpr size_t kMaxKeyBytes = 256, kMaxReplacementBytes = 1024;

// Fields of a unit of the Darts-clone double array.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FF; }
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

}  // namespace

StatusOr<Charsmap> Charsmap::parse(std::string_view blob) {
  Charsmap map;
  if (blob.empty()) return map;
  uint32_t trie_bytes = 0;
  if (blob.size() >= 4) std::memcpy(&trie_bytes, blob.data(), 4);
  if (blob.size() < 4 || trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes > blob.size() - 4) {
    return invalid_argument("character map of {} bytes: its header gives the trie {} bytes",
                            blob.size(), trie_bytes);
  }
  map.units_.resize(trie_bytes / 4);
  std::memcpy(map.units_.data(), blob.data() + 4, trie_bytes);
  map.strings_ = blob.substr(4 + trie_bytes);
  if (!is_valid_utf8(map.strings_)) return invalid_argument("character map: strings are not UTF-8");
  return map;
}

StatusOr<Charsmap> Charsmap::parse_base64(std::string_view text) {
  ASSIGN_OR_RETURN(const std::string blob, decode_base64(text));
  return parse(blob);
}

Charsmap::Match Charsmap::find(std::string_view text, bool first) const {
  Match match;
  if (units_.empty()) return match;
  uint32_t node = offset_of(units_[0]);
  for (size_t i = 0; i < std::min(text.size(), kMaxKeyBytes); ++i) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label_of(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) break;
    const size_t begin = value_of(units_[node]);
    if (begin >= strings_.size()) continue;
    std::string_view text_there =
        std::string_view(strings_).substr(begin, kMaxReplacementBytes + 1);
    text_there = text_there.substr(0, text_there.find('\0'));
    match = {i + 1, text_there};
    if (text_there.size() > kMaxReplacementBytes || !is_valid_utf8(text_there)) match = {};
    if (first && match.length > 0) break;
  }
  return match;
}

}  // namespace nereid::text
