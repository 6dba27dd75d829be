#include "text/tokenizer/trie.h"

#include <algorithm>

namespace nereid::text {

// Breadth first over the sorted keys: a node is a range of keys with the same first `depth` bytes.
Trie::Trie(std::vector<std::pair<std::string_view, int32_t>> entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, entries.size(), 0}};
  labels_.push_back(0);
  for (size_t node = 0; node < ranges.size(); ++node) {
    auto [at, end, depth] = ranges[node];
    values_.push_back(-1);
    while (at < end && entries[at].first.size() == depth) {
      if (depth > 0) values_.back() = entries[at].second;
      ++at;
    }
    first_child_.push_back(static_cast<uint32_t>(ranges.size()));
    while (at < end) {
      const char label = entries[at].first[depth];
      const size_t begin = at;
      while (at < end && entries[at].first[depth] == label) ++at;
      if (node == kRoot) root_[static_cast<uint8_t>(label)] = static_cast<uint32_t>(ranges.size());
      labels_.push_back(static_cast<uint8_t>(label));
      ranges.push_back({begin, at, depth + 1});
    }
  }
  first_child_.push_back(static_cast<uint32_t>(ranges.size()));
}

Trie::Match Trie::longest(std::string_view text) const {
  Match match;
  uint32_t node = kRoot;
  for (size_t i = 0; i < text.size(); ++i) {
    match.walked = i + 1;
    node = step(node, static_cast<uint8_t>(text[i]));
    if (node == kRoot) break;
    if (values_[node] >= 0) match = {values_[node], i + 1, i + 1};
  }
  return match;
}

}  // namespace nereid::text
