#include "runtime/guides.h"

#include "base/check.h"
#include "sched/sequence.h"

namespace nereid::runtime {

void Guides::add(const sched::Row& row, exec::StepRow& out, exec::Step& step) {
  const sched::Sequence& sequence = *row.sequence;
  const std::shared_ptr<const text::Guide>& guide = sequence.spec().guide;
  if (!row.samples || !guide) return;
  NEREID_CHECK(!row.input_on_device && row.num_drafts == 0);
  const auto [found, is_new] = states_.try_emplace(sequence.id(), State{text::GuidedOutput(guide)});
  State& state = found->second;
  const auto output = sequence.tokens().subspan(static_cast<size_t>(sequence.num_prompt()));
  for (; state.num_matched < output.size() && state.failure.ok(); ++state.num_matched)
    state.failure = state.output.accept(output[state.num_matched]);
  if (state.failure.ok() && !state.output.limits_next()) return;
  const auto words = static_cast<size_t>(kernels::mask_words(vocab_size_));
  out.has_mask = 1;
  step.masks.resize(step.masks.size() + words);
  const std::span<uint32_t> mask = std::span(step.masks).last(words);
  if (state.failure.ok()) state.failure = state.output.fill_mask(mask, sequence.spec().end_ids);
}

Status Guides::failure(RequestId id) const {
  const auto found = states_.find(id);
  return found == states_.end() ? ok() : found->second.failure;
}

}  // namespace nereid::runtime
