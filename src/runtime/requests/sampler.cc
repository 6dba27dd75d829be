// Sampler: slot loads and results.
#include "runtime/requests/sampler.h"

#include "base/check.h"
#include "runtime/requests/sample_params.h"
#include "sched/sequence.h"

namespace nereid::runtime {

Sampler::Sampler(const Options& options)
    : options_(options), slots_(static_cast<size_t>(options.max_rows)) {}

void Sampler::add(const sched::ScheduledRow& row, exec::StepRow& out, exec::StepMessage& step) {
  const bool generation = row.samples && row.sequence->spec().output.return_generation_logits;
  out.samples = row.samples;
  out.num_drafts = row.num_drafts;
  const bool pools = row.sequence->spec().output.pooling.has_value();
  out.num_read = !pools && (row.all_logits || generation) ? row.num_logits() : 0;
  out.num_hidden = pools ? row.num_logits() : 0;
  if (row.samples) add_sample(row, step);
}

void Sampler::add_sample(const sched::ScheduledRow& row, exec::StepMessage& step) {
  Slot& slot = slots_[static_cast<size_t>(row.slot)];
  const sched::Sequence& sequence = *row.sequence;
  const int32_t position = row.first_sampled();
  const bool loaded =
      slot.sequence == sequence.id() && slot.beam == row.beam && slot.next_position == position;
  if (!loaded) {
    const SlotParams wanted =
        slot_params(sequence.spec(), sequence.num_prompt(), options_.vocab_size);
    slot.sequence = sequence.id();
    slot.beam = row.beam;
    slot.keeps_history = wanted.params.keeps_history != 0;
    slot.draws = wanted.params.draws != 0;
    step.loads.push_back({.params = wanted.params,
                          .slot = row.slot,
                          .num_cells = static_cast<int32_t>(wanted.cells.size())});
    step.cells.insert(step.cells.end(), wanted.cells.begin(), wanted.cells.end());
  }
  slot.next_position = row.num_drafts > 0 ? -1 : position + 1;
  // The host selects beams, so the slot's tokens may be another beam's.
  if (!slot.keeps_history || (loaded && slot.draws)) return;
  const std::span<const TokenId> tokens = sequence.tokens(row.beam);
  NEREID_CHECK(tokens.size() >= static_cast<size_t>(position));
  step.histories.push_back({.slot = row.slot, .num_tokens = position});
  step.history_tokens.insert(step.history_tokens.end(), tokens.begin(), tokens.begin() + position);
}

std::span<const sched::SampledTokens> Sampler::drawn(const sched::ScheduledRow& row,
                                                     const exec::RowResult& result) {
  drawn_.clear(), top_.clear();
  if (row.num_drafts > 0)
    slots_[static_cast<size_t>(row.slot)].next_position =
        row.first_sampled() + static_cast<int32_t>(result.drawn.size());
  top_.reserve(result.top.size());  // entries of drawn_ point into it
  for (size_t i = 0; i < result.drawn.size(); ++i) {
    const kernels::SampleResult& r = result.drawn[i];
    const size_t first = top_.size();
    for (const kernels::TopToken& t : result.top_of(i)) top_.push_back({t.token, t.log_prob});
    drawn_.push_back(
        {.token = r.token,
         .log_prob = options_.normalize_log_probs ? r.log_prob - r.log_kept : r.log_prob,
         .full_log_prob = r.log_prob,
         .top = std::span(top_).subspan(first)});
  }
  return drawn_;
}

}  // namespace nereid::runtime
