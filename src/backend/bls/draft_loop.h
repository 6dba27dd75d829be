// Speculation with a second model: it says a few tokens more, the generating model tests them in
// one step, and so on until the output is complete.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "backend/common/item.h"
#include "backend/common/triton.h"

namespace nereid::backend {

// The tensor of that name; null: there is none.
const Output* find_output(const std::vector<Output>& outputs, std::string_view name);

// One sequence's tokens and what each call needs of them. The generating model draws by seed and
// position and keeps a draft only where it is what it draws, so the tokens are those of one call.
class DraftLoop {
 public:
  // The number of tokens in a draft; 0: the client wants none. InvalidArgument for a request that
  // cannot be made in parts, naming the input.
  static StatusOr<int32_t> num_drafts(const Item& item);

  // `llm_inputs`: of a call for the whole output, with input_ids [1, n], input_lengths and
  // request_output_len of one element. `num_drafts` > 0.
  static StatusOr<DraftLoop> create(std::vector<Output> llm_inputs, int32_t num_drafts);

  // The draft model is to be asked first; else the generating model at once.
  bool wants_draft() const { return draft_length() > 0; }
  std::vector<Output> draft_inputs() const;
  Status take_draft(const std::vector<Output>& outputs);

  std::vector<Output> target_inputs() const;
  // Takes over the generating model's tokens.
  Status take_tokens(std::vector<Output> outputs);
  bool is_over() const { return is_over_; }

  // As if one call had made all: the last call's outputs, with the tokens and counts of all calls.
  std::vector<Output> outputs(bool with_prompt) const;

 private:
  int32_t num_left() const { return max_tokens_ - num_generated(); }
  int32_t num_generated() const { return static_cast<int32_t>(ids_.size() - num_prompt_); }
  int32_t draft_length() const { return std::min(num_drafts_, num_left() - 1); }
  std::vector<Output> inputs(int32_t num_tokens) const;
  bool ends_with_stop_word() const;

  std::vector<Output> common_;        // inputs that stay the same
  std::vector<Output> first_, last_;  // outputs of the first and of the newest call
  std::vector<int32_t> ids_;          // prompt and output
  std::vector<int32_t> draft_;
  std::vector<std::vector<int32_t>> stop_words_;
  size_t num_prompt_ = 0;
  int32_t num_drafts_ = 0, max_tokens_ = 0, min_length_ = 0;
  int32_t num_tested_ = 0, num_held_ = 0;
  bool is_over_ = false;
};

}  // namespace nereid::backend
