// Added tokens of tokenizer.json: tokens that are cut out of the text before anything else sees it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/json.h"
#include "base/status.h"

namespace nereid::text {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // matches only between characters that are not \w
  bool lstrip = false;       // swallows the white space to its left
  bool rstrip = false;       // and to its right
  bool normalized = true;    // searched in normalised text, after the others
  bool special = false;

  // `spec` is an entry of "added_tokens", or a value of "added_tokens_decoder" with its key's `id`.
  static StatusOr<AddedToken> from_json(const json::value& spec, const json::value& id);
};

// Finds tokens in text: leftmost, then longest. Immutable once built.
class AddedTokenFinder {
 public:
  static constexpr size_t kMaxContentBytes = 1024;

  struct Match {
    const AddedToken* token;  // null for the text between tokens
    std::string_view text;
  };

  AddedTokenFinder();
  // `token` is owned by the caller, who keeps it at its address for this object's life.
  void add(const AddedToken* token);
  bool empty() const { return tokens_.empty(); }

  // Cuts `text` (valid UTF-8) into tokens and what is between them. Special tokens are passed over,
  // as text, unless `parse_special`.
  void split(std::string_view text, bool parse_special, std::vector<Match>& out) const;

 private:
  const AddedToken* longest_at(std::string_view text) const;

  std::vector<const AddedToken*> tokens_;
  std::array<bool, 256> first_bytes_{};
  absl::flat_hash_map<uint64_t, uint32_t> edges_;  // (node << 8 | byte) -> node; node 0 is the root
  std::vector<const AddedToken*> ends_;            // by node
};

}  // namespace nereid::text
