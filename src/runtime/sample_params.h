// From what a client asked for to what the sample kernels read.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "exec/step_message.h"
#include "kernels/api/sample.h"
#include "sched/sequence.h"

namespace nereid::runtime {

// Parameters of one slot and the cells of its lists.
struct SlotParams {
  kernels::SampleParams params;
  std::vector<int32_t> cells;  // of kernels::SampleLists
};

// `spec` has passed check_request. Beams (beam_width > 1) ask for the 2 * beam_width likeliest
// tokens of the processed log-softmax and draw nothing.
SlotParams slot_params(const sched::SequenceSpec& spec, int32_t num_prompt, int32_t vocab_size);

// Whether the likeliest token is drawn.
bool is_greedy(const SamplingConfig& sampling);

// Loads a slot of the step with what draws guesses for `sequence`: its own parameters as far as
// they are not masks, adapters, log-probs, tests of drafts or a dense bias. It comes after the
// tokens that are known and after those that are `guessed`, of which penalties take kUnknownToken
// for like no other. `num_top` of the likeliest tokens are reported.
inline constexpr TokenId kUnknownToken = std::numeric_limits<TokenId>::max();
void add_draft_params(const sched::Sequence& sequence, int32_t slot, int32_t vocab_size,
                      std::span<const TokenId> guessed, exec::Step& step, int32_t num_top = 0);

}  // namespace nereid::runtime
