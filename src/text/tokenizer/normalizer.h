// Normalizers of tokenizer.json: rewriting text before it is divided into words.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/encode_work.h"
#include "text/tokenizer/trie.h"
#include "text/tokenizer_files/json_node.h"

namespace nereid::text {

// Text passed through the normalizers. `at_start`: its first character comes from the
// input's first character.
struct NormalText {
  std::string text;
  EncodeWork* work;
  bool at_start = true;
};

using NormalizerStep = std::function<Status(NormalText&)>;

// Immutable.
class Normalizer {
 public:
  Normalizer() = default;
  // Null: an empty chain. Errors name path, value and what is allowed.
  static StatusOr<Normalizer> from_json(const JsonNode& spec);
  static Normalizer from_step(NormalizerStep step);

  bool empty() const { return steps_.empty(); }
  // ResourceExhausted beyond the bounds of `text.work`.
  Status run(NormalText& text) const;

 private:
  Status append(const JsonNode& spec, int depth);

  std::vector<NormalizerStep> steps_;
};

}  // namespace nereid::text
