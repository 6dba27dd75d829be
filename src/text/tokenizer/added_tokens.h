// Added tokens of tokenizer.json: tokens cut out of the text before it is normalised and split.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/encode_work.h"
#include "text/tokenizer/trie.h"
#include "text/tokenizer_files/json_node.h"

namespace nereid::text {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // matches only if both neighbours are not \w
  bool lstrip = false;       // takes the white space to its left
  bool rstrip = false;       // takes the white space to its right
  bool normalized = true;    // searched in normalised text, after the others
  bool special = false;

  // `spec` is an entry of "added_tokens", or a value of "added_tokens_decoder" with its key's `id`.
  static StatusOr<AddedToken> from_json(const JsonNode& spec, int32_t id);
};

// Finds tokens in text: leftmost, then longest. Immutable.
class AddedTokenFinder {
 public:
  static constexpr size_t kMaxContentBytes = 1024;

  struct Match {
    const AddedToken* token;  // null for text between tokens
    std::string_view text;
  };
  struct Entry {
    std::string pattern;
    const AddedToken* token;  // owned elsewhere at a stable address, for the finder's life
  };

  AddedTokenFinder() = default;
  explicit AddedTokenFinder(const std::vector<Entry>& entries);

  bool empty() const { return tokens_.empty(); }

  // Divides `text` (valid UTF-8) into tokens and the text between them. Special tokens count as
  // text unless `parse_special`. Errors are those of `work`.
  Status split(std::string_view text, bool parse_special, EncodeWork& work,
               std::vector<Match>& out) const;

 private:
  // The next position from `at` where a token may begin.
  size_t next_start(std::string_view text, size_t at) const;

  std::vector<const AddedToken*> tokens_;
  Trie trie_;  // values are indices of tokens_
  std::array<bool, 256> first_bytes_{};
  int only_first_byte_ = -1;  // -1 unless all tokens begin with the same byte
};

}  // namespace nereid::text
