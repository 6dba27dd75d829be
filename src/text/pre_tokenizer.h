// Pre-tokenizers of tokenizer.json: cutting text into the words that a model works on.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "text/json_node.h"
#include "text/pieces.h"
#include "text/word_scanner.h"

namespace nereid::text {

// A chain of steps, each of which cuts or rewrites the words of the one before. Immutable.
class PreTokenizer {
 public:
  struct Step {
    std::function<Status(Pieces&)> run;
    std::optional<WordRule> rule = {};  // all that it does is to cut words by it
  };

  PreTokenizer() = default;
  // Null gives an empty chain: the whole text is one word. Errors name path, value and what is
  // allowed.
  static StatusOr<PreTokenizer> from_json(const JsonNode& spec);

  // Cuts `text` (valid UTF-8), which must outlive `pieces`. `at_start`: it begins where the input
  // does. InvalidArgument when a regular expression's limits are exceeded, ResourceExhausted beyond
  // the bounds of `work`.
  Status run(std::string_view text, bool at_start, EncodeWork& work, Pieces& pieces) const;

  // The rule by which words are cut, where nothing else is done: scan_some_words() can take the
  // place of run().
  std::optional<WordRule> only_rule() const {
    return steps_.size() == 1 ? steps_[0].rule : std::nullopt;
  }

  // True when the last step writes bytes as letters of the byte-level alphabet. A model that works
  // on bytes does not need it: drop_byte_letters().
  bool ends_in_byte_letters() const { return byte_letters_; }
  void drop_byte_letters();

 private:
  Status append(const JsonNode& spec, int depth);

  std::vector<Step> steps_;
  bool byte_letters_ = false;
};

}  // namespace nereid::text
