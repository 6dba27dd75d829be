// From what a client asked for to what the sample kernels read.
#pragma once

#include <cstdint>
#include <vector>

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

}  // namespace nereid::runtime
