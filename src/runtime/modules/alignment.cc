#include "runtime/modules/alignment.h"

#include <algorithm>
#include <cstddef>

#include "runtime/sequence_payload.h"

namespace nereid::runtime {

void Alignment::open(const sched::SequenceSpec& spec, const Submit&) {
  if (!spec.output.alignment_heads.empty()) open_.insert(spec.id);
}

void Alignment::write(const sched::ScheduledRow& row, const RowMessage& to) {
  if (!row.all_logits || !open_.contains(row.sequence->id())) return;
  const auto& heads = row.sequence->spec().output.alignment_heads;
  to.out.num_scored_heads = static_cast<int32_t>(heads.size());
  for (const AttentionHead& head : heads) to.step.scored_heads.push_back({head.layer, head.head});
}

Status Alignment::completed(const LandedRow& completed, EngineUpdate& update) {
  const sched::ScheduledRow& row = completed.row;
  const std::span<const float> scores = completed.result.scores;
  if (scores.empty() || !open_.contains(row.sequence->id())) return ok();
  const std::shared_ptr<AttentionScores>& all = payload_of(row).scores;
  const auto positions = static_cast<size_t>(all->num_positions);
  const int32_t num_prompt = row.sequence->num_prompt(), end = std::min(row.end(), num_prompt);
  for (int32_t head = 0; head < all->num_heads && row.start < end; ++head) {
    const auto from = static_cast<size_t>(int64_t{head} * row.num_tokens) * positions;
    const auto to = static_cast<size_t>(int64_t{head} * num_prompt + row.start) * positions;
    std::copy_n(scores.begin() + static_cast<ptrdiff_t>(from),
                static_cast<size_t>(end - row.start) * positions,
                all->scores.begin() + static_cast<ptrdiff_t>(to));
  }
  if (end < num_prompt) return ok();
  update.attention_scores = all;
  open_.erase(row.sequence->id());
  return ok();
}

}  // namespace nereid::runtime
