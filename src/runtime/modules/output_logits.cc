#include "runtime/modules/output_logits.h"

#include <algorithm>
#include <new>
#include <utility>

namespace nereid::runtime {

void OutputLogits::open(const sched::SequenceSpec& spec, const Submit&) {
  if (spec.output.return_context_logits) prompts_.try_emplace(spec.id);
}

Status OutputLogits::completed(const LandedRow& completed, EngineUpdate& update) {
  const sched::ScheduledRow& row = completed.row;
  const bool generation =
      row.samples && !completed.is_late && row.sequence->spec().output.return_generation_logits;
  try {
    if (row.all_logits && !completed.result.logits.empty())
      add_prompt(row, completed.result.logits, update);
    if (generation) add_drawn(completed, update);
  } catch (const std::bad_alloc&) {
    const int32_t num_context = row.all_logits ? row.sequence->num_prompt() : 0;
    return resource_exhausted("there is no memory for {} rows of context logits and {} of others",
                              num_context, generation ? 1 + row.num_drafts : 0);
  }
  return ok();
}

// Gathers the row's `logits` [num_tokens, vocab]; the update gets all with the prompt's last row.
void OutputLogits::add_prompt(const sched::ScheduledRow& row, std::span<const float> logits,
                              EngineUpdate& update) {
  const auto found = prompts_.find(row.sequence->id());
  if (found == prompts_.end()) return;
  const auto vocab = logits.size() / static_cast<size_t>(row.num_tokens);
  const int32_t num_prompt = row.sequence->num_prompt();
  const int32_t end = std::min(row.end(), num_prompt);
  std::vector<float>& all = found->second;
  all.resize(static_cast<size_t>(num_prompt) * vocab);
  if (row.start < end)
    std::copy_n(logits.begin(), static_cast<size_t>(end - row.start) * vocab,
                all.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(row.start) * vocab));
  if (end < num_prompt) return;
  update.context_logits = std::make_shared<const std::vector<float>>(std::move(all));
  prompts_.erase(found);
}

// Adds the logits that each drawn token was drawn from.
void OutputLogits::add_drawn(const LandedRow& completed, EngineUpdate& update) const {
  std::vector<float>& to = update.generation_logits;
  const auto last =
      completed.result.logits.last(static_cast<size_t>(1 + completed.row.num_drafts) * vocab_);
  to.assign(last.begin(), last.begin() + static_cast<ptrdiff_t>(vocab_));
  for (const int32_t draft : completed.result.path) {
    const auto drawn = last.subspan(static_cast<size_t>(1 + draft) * vocab_, vocab_);
    to.insert(to.end(), drawn.begin(), drawn.end());
  }
}

// Tokens that were drawn and not kept have none.
void OutputLogits::finished(const FinishedStep& step) {
  for (EngineUpdate& update : step.updates)
    if (!update.generation_logits.empty())
      update.generation_logits.resize(update.row.tokens.size() * vocab_);
}

}  // namespace nereid::runtime
