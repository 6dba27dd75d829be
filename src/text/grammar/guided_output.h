// Which tokens may follow in an output whose answer a grammar holds, or whose reasoning has a
// limit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/grammar/grammar.h"
#include "text/grammar/token_trie.h"

namespace nereid::text {

// A text between two marks in front of the answer. A mark is the bytes of one token or of several;
// ids are of the vocabulary.
struct ReasoningPart {
  std::string open, close;
  // Tokens that stand for a part of a mark, whatever bytes the vocabulary gives them.
  std::vector<std::pair<int32_t, std::string>> marks;
  std::vector<int32_t> close_ids;     // what writes `close`
  bool begun = false;                 // by the prompt; else the output may begin with `open`
  std::optional<int32_t> max_tokens;  // between the marks
};

struct Guide {
  std::shared_ptr<const TokenTrie> tokens;
  std::shared_ptr<Grammar> grammar;  // of the answer; null: any answer
  std::optional<ReasoningPart> reasoning;
  std::vector<int32_t> broken_ids;  // broken_closings(), found once for all outputs
};

// The tokens that hold `close` of the guide's reasoning and behind it what no answer begins with:
// they may not end a reasoning. None without reasoning or grammar. InvalidArgument: the grammar is
// too ambiguous.
StatusOr<std::vector<int32_t>> broken_closings(const Guide& guide);

// One output, from its start. Owned by one thread.
class GuidedOutput {
 public:
  explicit GuidedOutput(std::shared_ptr<const Guide> guide);

  // The output goes on with this token. Errors as of Matcher::accept().
  Status accept(int32_t id, Effort& effort);
  // Whether there are tokens that may not follow.
  bool limits_next() const;
  // Sets the bits of all tokens that may follow and no other, as Matcher::fill_mask(). Where a
  // grammar holds the answer, none of `end_ids` may end the reasoning.
  Status fill_mask(std::span<uint32_t> mask, std::span<const int32_t> end_ids, Effort& effort);
  // Tokens that write what the answer must go on with, at most so many. Others may write it, too.
  std::vector<int32_t> forced(size_t most, Effort& effort);

  // With a whole effort.
  Status accept(int32_t id) {
    Effort whole;
    return accept(id, whole);
  }
  Status fill_mask(std::span<uint32_t> mask, std::span<const int32_t> end_ids) {
    Effort whole;
    return fill_mask(mask, end_ids, whole);
  }
  std::vector<int32_t> forced(size_t most) {
    Effort whole;
    return forced(most, whole);
  }

 private:
  enum class Phase { kStart, kReasoning, kAnswer };

  std::string_view bytes_of(int32_t id) const;
  Status go_on(int32_t id, Effort& effort);
  Status start(std::string_view bytes, Effort& effort);
  Status reason(std::string_view bytes, Effort& effort);
  Status answer(std::string_view bytes, Effort& effort);
  bool begins_close(int32_t id) const;
  bool is_closing() const;  // nothing but the rest of `close` may follow
  void allow_open(std::span<uint32_t> mask) const;
  Status forbid_broken_closings(std::span<uint32_t> mask, Effort& effort) const;

  std::shared_ptr<const Guide> guide_;
  Phase phase_ = Phase::kAnswer;
  std::optional<Matcher> matcher_;  // none too while only `open` can go on
  std::string begun_;               // kStart: the output without blanks in front, a part of `open`
  std::string tail_;                // kReasoning: the last bytes, which may begin `close`
  int32_t num_reasoned_ = 0;        // tokens
  size_t num_closing_ = 0;          // of close_ids that were written as such
};

}  // namespace nereid::text
