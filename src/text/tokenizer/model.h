// The "model" of tokenizer.json: one word to token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/tokenizer/encode_work.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/vocab.h"
#include "text/tokenizer/word_cache.h"
#include "text/tokenizer_files/json_node.h"

namespace nereid::text {

// Memory that Model::encode() reuses between words and texts. One object serves one tokenizer and
// one thread at a time.
struct EncodeScratch {
  struct Symbol {
    int32_t id;
    int32_t previous, next;  // -1 at the ends
  };
  struct PathNode {
    double score;
    int64_t begin;  // start of the best last token; -1: not reached
    int32_t id;
  };
  std::vector<Symbol> symbols;
  std::vector<uint64_t> heap;  // candidate merges: rank << 32 | position of the left symbol
  std::vector<PathNode> path;
  std::vector<Span> words;
  EncodeWork* work = nullptr;  // of the text
  WordCache cache;
};

// Immutable.
class Model {
 public:
  explicit Model(Vocab vocab) : vocab_(std::move(vocab)) {}
  virtual ~Model() = default;

  // Null is refused. Errors name path, value and what is allowed.
  static StatusOr<std::unique_ptr<Model>> from_json(const JsonNode& spec);

  // Appends the ids of `word` (valid UTF-8, not empty); `scratch.work` is set.
  // InvalidArgument: no token for it. Errors of `scratch.work`, charged for long words and for
  // walks through long tokens.
  virtual Status encode(std::string_view word, EncodeScratch& scratch,
                        std::vector<int32_t>& ids) const = 0;

  // Switches the model from letters of the byte-level alphabet to raw bytes. False: not possible.
  virtual bool take_raw_bytes() { return false; }

  const Vocab& vocab() const { return vocab_; }

 protected:
  Vocab vocab_;
};

}  // namespace nereid::text
