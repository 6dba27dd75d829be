#include "text/grammar/token_trie.h"

#include <algorithm>
#include <limits>
#include <string>

#include "text/tokenizer/tokenizer.h"

namespace nereid::text {

TokenTrie::TokenTrie(int32_t vocab_size, const std::function<std::string_view(int32_t)>& bytes_of) {
  constexpr size_t kLongest = std::numeric_limits<uint16_t>::max();
  tokens_.resize(static_cast<size_t>(vocab_size));
  for (int32_t id = 0; id < vocab_size; ++id) {
    const std::string_view bytes = bytes_of(id);
    if (bytes.empty() || bytes.size() > kLongest) continue;
    tokens_[static_cast<size_t>(id)] = bytes;
    ids_.push_back(id);
  }
  const auto text_of = [this](int32_t id) -> const std::string& {
    return tokens_[static_cast<size_t>(id)];
  };
  std::ranges::sort(ids_, [&](int32_t a, int32_t b) {
    const int order = text_of(a).compare(text_of(b));
    return order != 0 ? order < 0 : a < b;
  });
  nodes_.push_back({});
  std::vector<int32_t> path = {0};  // path to the last node
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back())
      nodes_[static_cast<size_t>(path.back())].end = static_cast<int32_t>(nodes_.size());
  };
  std::string_view last;
  for (size_t i = 0; i < ids_.size(); ++i) {
    const std::string_view text = text_of(ids_[i]);
    if (i > 0 && text == last) continue;
    const auto same = static_cast<size_t>(std::ranges::mismatch(text, last).in1 - text.begin());
    close(same + 1);
    for (size_t d = same; d < text.size(); ++d) {
      path.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({.byte = static_cast<uint8_t>(text[d]),
                        .depth = static_cast<uint16_t>(d + 1),
                        .first_token = static_cast<int32_t>(i)});
    }
    max_depth_ = std::max(max_depth_, static_cast<int32_t>(text.size()));
    last = text;
  }
  close(0);
  find_kinds();
}

int32_t TokenTrie::child(int32_t node, uint8_t byte) const {
  const int32_t end = nodes_[static_cast<size_t>(node)].end;
  int32_t below = node + 1;
  while (below < end && nodes_[static_cast<size_t>(below)].byte != byte)
    below = nodes_[static_cast<size_t>(below)].end;
  return below < end ? below : -1;
}

int32_t TokenTrie::longest(std::string_view text) const {
  int32_t node = 0, found = -1;
  for (const char c : text) {
    node = child(node, static_cast<uint8_t>(c));
    if (node < 0) break;
    if (const auto here = ids(node); !here.empty()) found = here.front();
  }
  return found;
}

void TokenTrie::find_kinds() {
  struct Above {
    size_t node = 0;
    Utf8Place place = Utf8Place::kBetween;  // position behind it
  };
  std::vector<Above> path(static_cast<size_t>(max_depth_) + 1);  // by depth
  std::vector<Above> above(nodes_.size());                       // for each node
  for (size_t i = 1; i < nodes_.size(); ++i) {
    above[i] = path[nodes_[i].depth - 1u];
    const int32_t num_above = nodes_[above[i].node].num_chars;
    const int32_t begins = above[i].place == Utf8Place::kBetween ? 1 : 0;
    nodes_[i].num_chars = static_cast<uint8_t>(std::min(num_above + begins, 255));
    path[nodes_[i].depth] = {i, next_place(above[i].place, nodes_[i].byte)};
  }
  for (size_t i = nodes_.size(); i-- > 1;) {
    const Node& node = nodes_[i];
    Node& parent = nodes_[above[i].node];
    const Utf8Place before = above[i].place;
    const bool begins = before == Utf8Place::kBetween;
    const bool is_broken = next_place(before, node.byte) == Utf8Place::kBroken;
    const CharKinds own = is_broken                    ? kBroken
                          : begins && node.byte < 0x80 ? kind_of_ascii(node.byte)
                                                       : kWide;
    parent.kinds_below = static_cast<CharKinds>(parent.kinds_below | own | node.kinds_below);
    parent.chars_below =
        std::max(parent.chars_below, static_cast<uint16_t>(node.chars_below + (begins ? 1 : 0)));
  }
  // A second loop, since the one above sums over subtrees.
  for (size_t i = 1; i < nodes_.size(); ++i)
    if (next_place(above[i].place, nodes_[i].byte) != Utf8Place::kBetween)
      nodes_[i].kinds_below |= kBroken;
}

std::shared_ptr<const TokenTrie> TokenTrie::of(const Tokenizer& tokenizer, int32_t vocab_size) {
  return std::make_shared<const TokenTrie>(vocab_size, [&](int32_t id) {
    return tokenizer.is_special(id) ? std::string_view() : tokenizer.token_bytes(id);
  });
}

std::string_view TokenTrie::token(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return tokens_[static_cast<size_t>(id)];
}

}  // namespace nereid::text
