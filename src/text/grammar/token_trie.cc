#include "text/grammar/token_trie.h"

#include <algorithm>
#include <limits>
#include <string>

#include "text/tokenizer.h"

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
  std::vector<int32_t> path = {0};  // to the last node
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
