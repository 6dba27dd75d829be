#include "runtime/speculation/draft_vocabulary.h"

#include <span>

#include "runtime/requests/sample_params.h"

namespace nereid::runtime {
namespace {

// Replaces tokens unknown to the head in word lists: no history has it, so the word never matches.
constexpr TokenId kNeverThere = kUnknownToken - 1;

}  // namespace

DraftVocabulary::DraftVocabulary(std::vector<TokenId> tokens, int32_t vocab_size)
    : tokens_(std::move(tokens)), own_(static_cast<size_t>(vocab_size), kUnknownToken) {
  for (size_t i = 0; i < tokens_.size(); ++i)
    own_[static_cast<size_t>(tokens_[i])] = static_cast<TokenId>(i);
}

TokenId DraftVocabulary::own(TokenId token) const {
  const bool is_known = token >= 0 && static_cast<size_t>(token) < own_.size();
  return is_known ? own_[static_cast<size_t>(token)] : kUnknownToken;
}

void DraftVocabulary::translate(exec::StepMessage& step, size_t num_history) const {
  exec::SlotLoad& load = step.loads.back();
  kernels::SampleParams& params = load.params;
  const auto cells = std::span(step.cells).last(static_cast<size_t>(load.num_cells));
  const kernels::SampleLists lists(params, cells.data(), nullptr);
  const auto translate_list = [&](const int32_t* first, int32_t count) {
    for (int32_t& id :
         cells.subspan(static_cast<size_t>(first - cells.data()), static_cast<size_t>(count)))
      id = own(id) == kUnknownToken ? kNeverThere : own(id);
  };
  translate_list(lists.end_ids, params.num_end_ids);
  translate_list(lists.bias_ids, params.num_biases);
  translate_list(lists.bad_tokens, params.num_bad_tokens);
  const TokenId reset = own(params.top_p_reset_id);
  params.top_p_reset_id = reset == kUnknownToken ? -1 : reset;
  for (int32_t& id : std::span(step.history_tokens).subspan(num_history)) id = own(id);
}

}  // namespace nereid::runtime
