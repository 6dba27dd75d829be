// Pre-tokenizers of tokenizer.json: cutting text into the words that BPE works on.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/regex.h"

namespace nereid::text {

// Adjacent pieces over one buffer: piece i is text[ends[i-1], ends[i]).
struct Pieces {
  std::string text;
  std::vector<size_t> ends;

  void add(std::string_view piece);
  std::string_view piece(size_t i) const;
};

// A chain of steps, each of which cuts or rewrites the pieces of the one before. Immutable.
class PreTokenizer {
 public:
  // Null gives an empty chain: the whole text is one word. Unimplemented names other types.
  static StatusOr<PreTokenizer> from_json(const json::value& spec);

  // Cuts `text` (valid UTF-8).
  StatusOr<Pieces> run(std::string_view text) const;

 private:
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  struct Split {
    Regex regex;
    Behavior behavior;
    bool invert;
  };
  struct PrefixSpace {};     // a space before pieces that do not start with white space
  struct BytesToLetters {};  // every byte becomes its letter of the byte-level alphabet
  using Step = std::variant<Split, PrefixSpace, BytesToLetters>;

  Status append(const json::value& spec, int depth);
  Status append_split(const json::object& spec);
  Status append_byte_level(const json::object& spec);
  static Status run_split(const Split& split, std::string_view piece, std::vector<Span>& scratch,
                          Pieces& out);

  std::vector<Step> steps_;
};

}  // namespace nereid::text
