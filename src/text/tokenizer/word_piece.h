// WordPiece: a word is segmented from the left into the longest tokens.
#pragma once

#include <memory>

#include "text/tokenizer/model.h"
#include "text/tokenizer/trie.h"

namespace nereid::text {

class WordPiece : public Model {
 public:
  WordPiece(Vocab vocab, int32_t unknown, std::string_view prefix, int64_t max_characters);
  static StatusOr<std::unique_ptr<WordPiece>> from_json(const JsonNode& spec);

  Status encode(std::string_view word, EncodeScratch& scratch,
                std::vector<int32_t>& ids) const override;

 private:
  Trie initial_;     // tokens that may begin a word
  Trie continuing_;  // tokens that may follow, without their prefix
  int32_t unknown_;
  int64_t max_characters_;  // longer words are unknown
};

}  // namespace nereid::text
