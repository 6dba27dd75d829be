// A vocabulary as a trie of the tokens' bytes, so that tokens with a common prefix share steps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "text/grammar/char_kinds.h"

namespace nereid::text {

class Tokenizer;

class TokenTrie {
 public:
  // Nodes in preorder: a node's subtree follows it.
  struct Node {
    uint8_t byte = 0;       // last byte of the node's text
    uint8_t num_chars = 0;  // characters that begin in its text; 255: 255 or more
    uint16_t depth = 0;     // from 1; node 0 is the root, with depth 0
    // If its text ends between two characters: classes of the characters below it, and the largest
    // number of them on a path. Else kBroken is set.
    CharKinds kinds_below = 0;
    uint16_t chars_below = 0;
    int32_t end = 0;          // its subtree is the nodes up to this one
    int32_t first_token = 0;  // its ids: tokens()[first_token .. that of the next node)
  };

  // `bytes_of(id)` for ids in [0, vocab_size); tokens that are empty or longer than 65535
  // bytes are left out.
  TokenTrie(int32_t vocab_size, const std::function<std::string_view(int32_t)>& bytes_of);
  // Special tokens have no bytes.
  static std::shared_ptr<const TokenTrie> of(const Tokenizer& tokenizer, int32_t vocab_size);

  int32_t vocab_size() const { return static_cast<int32_t>(tokens_.size()); }
  // Empty for ids outside the vocabulary.
  std::string_view token(int32_t id) const;
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const int32_t> ids(int32_t node) const { return ids_of(node, node + 1); }
  // The child with this byte; -1: none.
  int32_t child(int32_t node, uint8_t byte) const;
  // The longest token that is a prefix of `text`, the lowest id of equal ones; -1: none.
  int32_t longest(std::string_view text) const;
  // Ids of all nodes in [first, last).
  std::span<const int32_t> ids_of(int32_t first, int32_t last) const {
    const auto begin_of = [this](int32_t node) {
      const auto index = static_cast<size_t>(node);
      return index < nodes_.size() ? static_cast<size_t>(nodes_[index].first_token) : ids_.size();
    };
    const size_t begin = begin_of(first);
    return std::span(ids_).subspan(begin, begin_of(last) - begin);
  }
  int32_t max_depth() const { return max_depth_; }

 private:
  void find_kinds();

  std::vector<std::string> tokens_;  // by id
  std::vector<int32_t> ids_;         // in the order of their texts
  std::vector<Node> nodes_;
  int32_t max_depth_ = 0;
};

}  // namespace nereid::text
