// Byte-pair encoding of one word: merges the adjacent pair of lowest rank until none is left.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/trie.h"

namespace nereid::text {

// A merge of two tokens into one. The last one counts among rules for the same pair.
struct MergeRule {
  int32_t left, right, id;
  uint32_t rank;  // lowest first; leftmost pair among equal ranks
};

struct BpeOptions {
  std::optional<int32_t> unknown;
  bool fuse_unknown = false;   // one unknown token for a run of unknown characters
  bool byte_fallback = false;  // "<0xHH>" tokens for characters without a token
  bool ignore_merges = false;  // a word in the vocabulary is that token
  std::string prefix;          // before every character of a word but the first
  std::string suffix;          // after the last character
  // Tokens cut out of a word before merging, which never merge.
  std::vector<std::pair<std::string, int32_t>> whole;
};

class Bpe : public Model {
 public:
  Bpe(Vocab vocab, const std::vector<MergeRule>& merges, BpeOptions options);
  static StatusOr<std::unique_ptr<Bpe>> from_json(const JsonNode& spec);

  // O(n log n) in the length of the word.
  Status encode(std::string_view word, EncodeScratch& scratch,
                std::vector<int32_t>& ids) const override;
  bool take_raw_bytes() override;

 private:
  struct Merge {
    uint32_t rank = std::numeric_limits<uint32_t>::max();
    int32_t id = -1;  // -1: none
  };

  static uint64_t pair_key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  const Merge* find_merge(int32_t left, int32_t right) const {
    const auto found = merges_.find(pair_key(left, right));
    return found == merges_.end() ? nullptr : &found->second;
  }
  bool no_token_crosses_spaces() const;
  Status encode_word(std::string_view word, EncodeScratch& scratch,
                     std::vector<int32_t>& ids) const;
  Status encode_new(std::string_view word, EncodeScratch& scratch, std::vector<int32_t>& ids) const;
  Status start_symbols(std::string_view word, EncodeScratch& scratch) const;
  int32_t id_of_character(std::string_view character, char32_t code) const;
  bool start_bytes(std::string_view text, EncodeScratch& scratch) const;
  // `word` is the text of the symbols.
  void merge_few(std::string_view word, EncodeScratch& scratch) const;
  Status merge_many(EncodeScratch& scratch) const;
  void push_pair(EncodeScratch& scratch, int32_t left) const;

  BpeOptions options_;
  absl::flat_hash_map<uint64_t, Merge> merges_;
  std::array<int32_t, 0x180> by_code_;  // ids of one-character tokens below U+0180, or -1
  std::array<int32_t, 256> byte_ids_;   // ids of "<0xHH>", or -1
  Trie whole_;
  bool has_whole_ = false;
  bool cuts_at_spaces_ = false;  // long words are divided before space marks
  // With raw bytes: ids by the tokens' bytes, and the ids of single bytes.
  bool raw_ = false;
  StringMap<int32_t> raw_ids_;
  std::array<int32_t, 256> raw_byte_ids_;
  std::vector<Merge> byte_merges_;  // merges of two bytes, the first in the high half of the index
};

}  // namespace nereid::text
