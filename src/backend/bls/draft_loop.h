// Speculation with a draft model: it proposes a few tokens, the generating model tests them in one
// step, and both repeat until the output is complete.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "backend/common/item.h"
#include "backend/common/triton.h"

namespace nereid::backend {

// How a model leaves the prompt out of its output_ids.
struct PromptRule {
  bool has_input = true;     // exclude_input_in_output
  bool is_excluded = false;  // the model's parameter of that name, used without the input
  bool is_repeated() const { return !has_input && !is_excluded; }
};

// One sequence's tokens and what each call needs of them. The generating model draws by seed and
// position and keeps a draft only where it is what it draws, so the tokens are those of one call.
// With use_draft_logits it compares how likely a draft is to both models instead, so that the
// tokens of sampled requests are distributed as those of one call.
class DraftLoop {
 public:
  struct DraftOptions {
    int32_t num_drafts = 0;    // draft tokens per call; 0: no speculation
    bool with_logits = false;  // whether the draft model returns logits
  };
  // The client's request for speculation. InvalidArgument, naming the input, for a request that
  // cannot be divided into calls.
  static StatusOr<DraftOptions> wish(const Item& item);

  // `llm_inputs`: of a call for the whole output, with input_ids [1, n], input_lengths and
  // request_output_len of one element. `wish` has drafts.
  static StatusOr<DraftLoop> create(std::vector<Output> llm_inputs, const DraftOptions& wish,
                                    const PromptRule& target, const PromptRule& draft);

  // Whether the draft model is called next; else the generating model.
  bool wants_draft() const { return draft_length() > 0; }
  std::vector<Output> draft_inputs() const;
  Status take_draft(const std::vector<Output>& outputs);

  std::vector<Output> target_inputs() const;
  // Appends the generating model's tokens to the output.
  Status take_tokens(std::vector<Output> outputs);
  bool is_over() const { return is_over_; }

  // The outputs of a single call: those of the last one, with tokens and counts of all.
  std::vector<Output> outputs(bool with_prompt) const;

 private:
  int32_t num_left() const { return max_tokens_ - num_generated(); }
  int32_t num_generated() const { return static_cast<int32_t>(ids_.size() - num_prompt_); }
  // Tokens still to come before an end id is allowed.
  int32_t min_left() const { return std::max(min_length_ - num_generated(), 0); }
  int32_t draft_length() const;
  Status take_logits(const std::vector<Output>& outputs);
  std::vector<Output> inputs(int32_t num_tokens, const PromptRule& rule) const;
  StatusOr<std::vector<int32_t>> tokens_of(const std::vector<Output>& outputs,
                                           const PromptRule& rule) const;
  bool ends_with_stop_word() const;

  std::vector<Output> common_;        // inputs equal in all calls
  std::vector<Output> first_, last_;  // outputs of the first and of the newest call
  std::vector<int32_t> ids_;          // prompt and output so far
  std::vector<int32_t> draft_;
  std::optional<Output> draft_logits_;  // [1, draft, vocab]
  std::vector<std::vector<int32_t>> stop_words_;
  size_t num_prompt_ = 0;
  DraftOptions draft_options_;
  PromptRule target_rule_, draft_rule_;
  int32_t max_tokens_ = 0, min_length_ = 0;
  int32_t num_tested_ = 0, num_held_ = 0;
  bool is_over_ = false;
};

}  // namespace nereid::backend
