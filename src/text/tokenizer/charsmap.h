// SentencePiece's precompiled character map: from strings of characters to their normalised form. A
// double-array trie (Darts-clone layout), followed by the replacements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace nereid::text {

class Charsmap {
 public:
  // An empty map replaces nothing.
  Charsmap() = default;
  // `blob`: the trie's size in 4 bytes little-endian, its 4-byte units, then zero-terminated
  // strings. InvalidArgument: sizes do not match. A damaged trie gives wrong replacements but no
  // access outside of it.
  static StatusOr<Charsmap> parse(std::string_view blob);
  static StatusOr<Charsmap> parse_base64(std::string_view text);

  bool empty() const { return units_.empty(); }

  struct Match {
    size_t length = 0;             // bytes of the key; 0 = no match
    std::string_view replacement;  // owned by this object
  };
  // The shortest or longest key that is a prefix of `text`.
  Match shortest(std::string_view text) const { return find(text, true); }
  Match longest(std::string_view text) const { return find(text, false); }

 private:
  Match find(std::string_view text, bool first) const;

  std::vector<uint32_t> units_;
  std::string strings_;
};

}  // namespace nereid::text
