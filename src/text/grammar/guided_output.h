// Token masks for an output with a grammar for the answer, or a limit on the reasoning.
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

// The reasoning part: text between two markers before the answer. A marker is the bytes of one
// token or several; ids are the vocabulary's.
struct ReasoningPart {
  std::string open, close;
  // Special tokens that are a part of a marker, with its bytes.
  std::vector<std::pair<int32_t, std::string>> marks;
  std::vector<int32_t> close_ids;     // tokens written to force `close`
  bool begun = false;                 // begun by the prompt; else the output may begin with `open`
  std::optional<int32_t> max_tokens;  // between the markers
};

struct OutputConstraint {
  std::shared_ptr<const TokenTrie> tokens;
  std::shared_ptr<Grammar> grammar;  // constrains the answer; null: any answer
  std::optional<ReasoningPart> reasoning;
  std::vector<int32_t> broken_ids;  // invalid_closing_tokens(), computed once for all outputs
};

// The tokens that contain `close` of the reasoning followed by text that begins no answer: they
// are never allowed in the reasoning. Empty without reasoning or grammar. InvalidArgument: the
// grammar is too ambiguous.
StatusOr<std::vector<int32_t>> invalid_closing_tokens(const OutputConstraint& guide);

// The state of one output, from its start. Owned by one thread.
class ConstrainedOutput {
 public:
  explicit ConstrainedOutput(std::shared_ptr<const OutputConstraint> guide);

  // Appends a token to the output. Errors as of Matcher::accept().
  Status accept(int32_t id, StepBudget& effort);
  // Whether some token may not follow.
  bool limits_next() const;
  // Sets the bits of all tokens that may follow and no other, as Matcher::fill_mask(). If a grammar
  // is set, none of `end_ids` may end the output inside the reasoning.
  Status fill_mask(std::span<uint32_t> mask, std::span<const int32_t> end_ids, StepBudget& effort);
  // Jump-forward tokens: a tokenisation of the text that the answer must continue with, at most
  // `most`. Other tokenisations are allowed too.
  std::vector<int32_t> forced(size_t most, StepBudget& effort);

  // accept() with the largest effort.
  Status accept(int32_t id) {
    StepBudget whole;
    return accept(id, whole);
  }
  Status fill_mask(std::span<uint32_t> mask, std::span<const int32_t> end_ids) {
    StepBudget whole;
    return fill_mask(mask, end_ids, whole);
  }
  std::vector<int32_t> forced(size_t most) {
    StepBudget whole;
    return forced(most, whole);
  }

 private:
  enum class Phase { kStart, kReasoning, kAnswer };

  std::string_view bytes_of(int32_t id) const;
  Status go_on(int32_t id, StepBudget& effort);
  Status start(std::string_view bytes, StepBudget& effort);
  Status reason(std::string_view bytes, StepBudget& effort);
  Status answer(std::string_view bytes, StepBudget& effort);
  bool begins_close(int32_t id) const;
  bool is_closing() const;  // only the rest of `close` may follow
  void allow_open(std::span<uint32_t> mask) const;
  Status forbid_broken_closings(std::span<uint32_t> mask, StepBudget& effort) const;

  std::shared_ptr<const OutputConstraint> guide_;
  Phase phase_ = Phase::kAnswer;
  std::optional<Matcher> matcher_;  // unset, too, while only `open` can continue
  std::string begun_;               // kStart: the output without leading blanks, a prefix of `open`
  std::string tail_;                // kReasoning: the last bytes, which may begin `close`
  int32_t num_reasoned_ = 0;        // tokens of reasoning
  size_t num_closing_ = 0;          // tokens of close_ids written in order
};

}  // namespace nereid::text
