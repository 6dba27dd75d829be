// Unigram model: the segmentation of a word whose tokens have the highest sum of scores (Viterbi).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer/model.h"
#include "text/tokenizer/trie.h"

namespace nereid::text {

// One piece; its id is its index in the list.
struct UnigramPiece {
  std::string text;
  double score = 0;           // log probability
  bool usable = true;         // may occur in text
  bool user_defined = false;  // chosen over every other segmentation
};

struct UnigramOptions {
  std::optional<int32_t> unknown;
  bool byte_fallback = false;
};

class Unigram : public Model {
 public:
  Unigram(Vocab vocab, const std::vector<UnigramPiece>& pieces, const UnigramOptions& options);
  static StatusOr<std::unique_ptr<Unigram>> from_json(const JsonNode& spec);

  // O(n) in the length of the word for a given longest piece.
  Status encode(std::string_view word, EncodeScratch& scratch,
                std::vector<int32_t>& ids) const override;

 private:
  Status find_path(std::string_view word, EncodeScratch& scratch) const;
  Status append_piece(std::string_view piece, std::vector<int32_t>& ids) const;

  UnigramOptions options_;
  Trie trie_;
  std::vector<double> scores_;
  std::vector<bool> user_defined_;
  double unknown_score_ = 0, best_score_ = 0;
  std::array<int32_t, 256> byte_ids_;
};

}  // namespace nereid::text
