// How a request becomes sequences of the scheduler.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "nereid/request.h"
#include "nereid/response.h"
#include "runtime/adapters/adapter.h"
#include "runtime/prompts/encoder_input.h"
#include "sched/sequence.h"
#include "text/grammar/guided_output.h"

namespace nereid::runtime {

// Parts made or found for a request.
struct SequenceParts {
  std::vector<sched::InputKey> input_keys;
  std::vector<EncoderRows> encoder_inputs;
  std::vector<sched::WholeSpan> whole_spans;
  std::vector<int32_t> components;  // see SequencePayload
  int32_t component_offset = 0;
  std::shared_ptr<AttentionScores> scores;              // null: it asks for none
  std::shared_ptr<EncoderOutput> encoder_output;        // null: it does not ask for it
  std::shared_ptr<const text::OutputConstraint> guide;  // null: it needs none
  const Adapter* adapter = nullptr;                     // null: none
  int32_t score_weight = 1;                             // see sched::SequenceSpec
  float typical_acceptance = 0;                         // see ExecutorConfig
  // Most time from the arrival to the end, whatever the request asks for.
  std::chrono::milliseconds max_time = std::chrono::milliseconds::max();
  Time arrival;
};

// Its sequences, with ids from `id` on. The i-th is drawn with seed + i; the others follow the
// first through the prompt. They share a SequencePayload. Precondition: check_request().
std::vector<sched::SequenceSpec> request_sequences(RequestId id, Request request,
                                                   SequenceParts parts);

}  // namespace nereid::runtime
