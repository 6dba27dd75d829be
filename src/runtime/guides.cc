#include "runtime/guides.h"

#include "base/check.h"
#include "sched/sequence.h"

namespace nereid::runtime {

void Guides::add(const sched::Row& row, exec::StepRow& out) {
  const std::shared_ptr<const text::Guide>& guide = row.sequence->spec().guide;
  if (!row.samples || !guide) return;
  NEREID_CHECK(row.num_drafts == 0);
  states_.try_emplace(row.sequence->id(), State{text::GuidedOutput(guide)});
  out.has_mask = 1;
}

void Guides::fill(const sched::StepPlan& plan, exec::Masks& masks) {
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const sched::Row& row = plan.rows[i];
    const sched::Sequence& sequence = *row.sequence;
    if (!row.samples || !sequence.spec().guide) continue;
    const auto found = states_.find(sequence.id());
    if (found == states_.end()) continue;  // it has ended
    if (sequence.tokens().size() != static_cast<size_t>(row.first_drawn())) continue;
    fill(found->second, sequence, static_cast<int32_t>(i), masks);
  }
}

void Guides::fill(State& state, const sched::Sequence& sequence, int32_t row, exec::Masks& masks) {
  const auto output = sequence.tokens().subspan(static_cast<size_t>(sequence.num_prompt()));
  for (; state.num_matched < output.size() && state.failure.ok(); ++state.num_matched)
    state.failure = state.output.accept(output[state.num_matched]);
  if (state.failure.ok() && !state.output.limits_next()) return;
  const auto num_words = static_cast<size_t>(kernels::mask_words(vocab_size_));
  masks.rows.push_back(row);
  masks.words.resize(masks.words.size() + num_words);
  const std::span<uint32_t> mask = std::span(masks.words).last(num_words);
  if (state.failure.ok()) state.failure = state.output.fill_mask(mask, sequence.spec().end_ids);
}

Status Guides::failure(RequestId id) const {
  const auto found = states_.find(id);
  return found == states_.end() ? ok() : found->second.failure;
}

}  // namespace nereid::runtime
