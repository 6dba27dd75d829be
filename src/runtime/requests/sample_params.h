// From a request's sampling options to the sample kernels' parameters.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "exec/step_message.h"
#include "kernels/api/sample.h"
#include "sched/sequence.h"

namespace nereid::runtime {

// Parameters of a slot, and the cells of its lists.
struct SlotParams {
  kernels::SampleParams params;
  std::vector<int32_t> cells;  // of kernels::SampleLists
};

// Precondition: `spec` passed check_request(). Beam search (beam_width > 1) reports the 2 *
// beam_width likeliest tokens of the processed log-softmax and samples nothing.
SlotParams slot_params(const sched::SequenceSpec& spec, int32_t num_prompt, int32_t vocab_size);

// Whether the likeliest token is sampled.
bool is_greedy(const SamplingConfig& sampling);

// Loads a slot of the step for sampling drafts of `sequence`: its parameters without masks,
// adapters, log-probs, draft tests and dense bias. History: the known tokens, then `drafts`, where
// kUnknownToken equals no token in penalties. Reports the `num_top` likeliest tokens.
inline constexpr TokenId kUnknownToken = std::numeric_limits<TokenId>::max();
void add_draft_params(const sched::Sequence& sequence, int32_t slot, int32_t vocab_size,
                      std::span<const TokenId> drafts, exec::StepMessage& step,
                      int32_t num_top = 0);

}  // namespace nereid::runtime
