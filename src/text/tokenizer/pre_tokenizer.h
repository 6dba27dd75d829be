// Pre-tokenizers of tokenizer.json: splitting text into the words that a model works on.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer/pieces.h"
#include "text/tokenizer/word_scanner.h"
#include "text/tokenizer_files/json_node.h"

namespace nereid::text {

// A chain of steps, each of which splits or rewrites the words of the previous one. Immutable.
class PreTokenizer {
 public:
  struct Step {
    std::function<Status(Pieces&)> run;
    std::optional<WordRule> rule = {};  // set if splitting by this rule is the whole step
  };

  PreTokenizer() = default;
  // Null: an empty chain, the whole text is one word. Errors name path, value and what is allowed.
  static StatusOr<PreTokenizer> from_json(const JsonNode& spec);

  // Splits `text` (valid UTF-8), which must outlive `pieces`. `at_start`: it begins where the input
  // does. InvalidArgument when a regular expression's limits are exceeded, ResourceExhausted beyond
  // the bounds of `work`.
  Status run(std::string_view text, bool at_start, EncodeWork& work, Pieces& pieces) const;

  // The word rule, if splitting by it is the whole chain: scan_some_words() can then replace run().
  std::optional<WordRule> only_rule() const {
    return steps_.size() == 1 ? steps_[0].rule : std::nullopt;
  }

  // True when the last step writes bytes as letters of the byte-level alphabet. A model on raw
  // bytes does not need it: drop_byte_letters().
  bool ends_in_byte_letters() const { return byte_letters_; }
  void drop_byte_letters();

 private:
  Status append(const JsonNode& spec, int depth);

  std::vector<Step> steps_;
  bool byte_letters_ = false;
};

}  // namespace nereid::text
