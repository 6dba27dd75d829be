#include "runtime/modules/encoder_inputs.h"

#include "runtime/sequence_payload.h"

namespace nereid::runtime {

bool EncoderInputs::planned(const sched::StepPlan& plan, const sched::Scheduler&,
                            exec::StepMessage& step) {
  for (const sched::Sequence* sequence : plan.encodes) {
    const EncoderRows& input = payload_of(sequence->spec()).encoder;
    step.encoder_inputs.push_back({input.length});
    if (input.rows.empty())
      step.encoder_tokens.insert(step.encoder_tokens.end(), input.token_ids.begin(),
                                 input.token_ids.end());
    else
      step.encoder_tokens.insert(step.encoder_tokens.end(), static_cast<size_t>(input.length),
                                 exec::kTokenExternal);
    static_assert(sizeof(BF16) == sizeof(input.rows[0]));
    const auto* const numbers = reinterpret_cast<const BF16*>(input.rows.data());
    step.encoder_embeddings.insert(step.encoder_embeddings.end(), numbers,
                                   numbers + input.rows.size());
    const auto blocks = sequence->cross_blocks();
    step.encoder_blocks.insert(step.encoder_blocks.end(), blocks.begin(), blocks.end());
  }
  return false;
}

void EncoderInputs::write(const sched::ScheduledRow& row, const RowMessage& to) {
  to.out.cross_length = row.sequence->spec().encoder.length;
  const auto blocks = row.sequence->cross_blocks();
  to.step.cross_blocks.insert(to.step.cross_blocks.end(), blocks.begin(), blocks.end());
}

}  // namespace nereid::runtime
