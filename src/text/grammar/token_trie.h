// A vocabulary by the bytes of its tokens, so that tokens that begin alike are walked together.
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
  // Nodes before those below them, next to each other.
  struct Node {
    uint8_t byte = 0;       // behind the node above
    uint8_t num_chars = 0;  // that begin up to here; of more than 254: 255
    uint16_t depth = 0;     // from 1; 0 is the root, which is node 0
    // What stands below it, if it ends between two characters (else kBroken is among them): kinds
    // of characters, and the most of them on a way.
    CharKinds kinds_below = 0;
    uint16_t chars_below = 0;
    int32_t end = 0;  // the nodes below it are those up to this one
    int32_t first_token =
        0;  // the ids of this text: tokens()[first_token .. that of the next node)
  };

  // `bytes_of(id)` for ids in [0, vocab_size); tokens that are empty or longer than 65535 bytes are
  // left out.
  TokenTrie(int32_t vocab_size, const std::function<std::string_view(int32_t)>& bytes_of);
  // Special tokens have no bytes.
  static std::shared_ptr<const TokenTrie> of(const Tokenizer& tokenizer, int32_t vocab_size);

  int32_t vocab_size() const { return static_cast<int32_t>(tokens_.size()); }
  // Empty for ids outside the vocabulary.
  std::string_view token(int32_t id) const;
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const int32_t> ids(int32_t node) const { return ids_of(node, node + 1); }
  // The node below with this byte; -1: there is none.
  int32_t child(int32_t node, uint8_t byte) const;
  // The longest token that `text` begins with, the first of equal ones; -1: none.
  int32_t longest(std::string_view text) const;
  // Of all nodes in [first, last).
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
