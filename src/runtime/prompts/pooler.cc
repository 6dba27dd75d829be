#include "runtime/prompts/pooler.h"

#include <algorithm>
#include <cmath>
#include <new>

namespace nereid::runtime {

void Pooler::open(const sched::SequenceSpec& spec, const Submit&) {
  if (spec.output.pooling) sums_.try_emplace(spec.id);
}

Status Pooler::completed(const LandedRow& completed, EngineUpdate& update) {
  const sched::ScheduledRow& row = completed.row;
  const std::span<const BF16> hidden = completed.result.hidden;
  std::vector<float>& embedding = update.embedding;
  if (hidden.empty()) return ok();
  const auto found = sums_.find(row.sequence->id());
  if (found == sums_.end()) return ok();
  try {
    add_states(row, hidden, found->second, embedding);
  } catch (const std::bad_alloc&) {
    return resource_exhausted("there is no memory for an embedding of {} numbers", hidden_size_);
  }
  if (std::ranges::all_of(embedding, [](float x) { return std::isfinite(x); })) return ok();
  return internal_error(
      "the hidden states of the prompt were not finite (NaN or infinity); only this request fails");
}

void Pooler::add_states(const sched::ScheduledRow& row, std::span<const BF16> hidden,
                        std::vector<double>& sum, std::vector<float>& embedding) const {
  const Pooling pooling = *row.sequence->spec().output.pooling;
  const std::span<const BF16> last = hidden.last(width_).first(hidden_size_);
  if (pooling == Pooling::kLast) {
    for (const BF16 x : last) embedding.push_back(to_float(x));
    return;
  }
  if (pooling == Pooling::kScore) {
    for (size_t at = 0; at < head_.size(); at += hidden_size_) {
      double score = 0;
      for (size_t i = 0; i < hidden_size_; ++i)
        score += static_cast<double>(head_[at + i]) * to_float(last[i]);
      embedding.push_back(static_cast<float>(score));
    }
    return;
  }
  if (row.start == 0) sum.assign(hidden_size_, 0);
  for (size_t at = 0; at < hidden.size(); at += width_)
    for (size_t i = 0; i < hidden_size_; ++i) sum[i] += to_float(hidden[at + i]);
  if (!row.ends_prompt) return;
  for (const double x : sum) embedding.push_back(static_cast<float>(x / row.end()));
}

}  // namespace nereid::runtime
