// The words of a text, and splitting at matches.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/encode_work.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer_files/json_node.h"

namespace nereid::text {

// Words over one buffer. Not copyable: `text` may refer to `owned`.
struct Pieces {
  std::string_view text;
  std::string owned;  // the buffer, once the words are no longer part of the input
  std::vector<Span> spans;
  bool at_start = false;  // the first word begins where the input begins
  EncodeWork* work = nullptr;

  Pieces() = default;
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  std::string_view piece(size_t i) const {
    return text.substr(spans[i].begin, spans[i].end - spans[i].begin);
  }
  // The whole of `input` as one word, none when it is empty. `input` must outlive this object.
  void reset(std::string_view input, bool input_at_start, EncodeWork& work_of_text);
};

// The fate of a match: dropped, a word of its own, or joined to a neighbour.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
StatusOr<SplitBehavior> read_split_behavior(const JsonNode& name);

// Appends the matches in a word from left to right.
using FindMatches =
    std::function<Status(std::string_view word, std::vector<Span>& matches, EncodeWork& work)>;

// Splits every word at its matches. `invert` swaps matches and gaps.
Status split_pieces(Pieces& pieces, const FindMatches& find, SplitBehavior behavior, bool invert);

// Replaces every word by the text that `rewrite` appends to the buffer.
using RewritePiece = std::function<void(std::string_view word, bool at_start, std::string& out)>;
void rewrite_pieces(Pieces& pieces, const RewritePiece& rewrite);

}  // namespace nereid::text
