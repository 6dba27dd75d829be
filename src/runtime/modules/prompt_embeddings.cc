#include "runtime/modules/prompt_embeddings.h"

#include <algorithm>

#include "runtime/sequence_payload.h"

namespace nereid::runtime {

// Rows that follow one another are copied in one piece.
void PromptEmbeddings::write(const sched::ScheduledRow& row, const RowMessage& to) {
  const std::span<const uint16_t> table = payload_of(row).prompt_table;
  if (table.empty() || row.start >= row.sequence->num_prompt()) return;
  const auto width = static_cast<size_t>(width_);
  const auto tokens = to.tokens.first(to.tokens.size() - static_cast<size_t>(row.num_drafts));
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < vocab_size_) continue;
    const auto first = static_cast<size_t>(tokens[i] - vocab_size_);
    size_t count = 1;
    while (i + count < tokens.size() &&
           tokens[i + count] == tokens[i] + static_cast<TokenId>(count))
      ++count;
    const auto rows = table.subspan(first * width, count * width);
    static_assert(sizeof(BF16) == sizeof(rows[0]));
    const auto* const numbers = reinterpret_cast<const BF16*>(rows.data());
    to.step.embeddings.insert(to.step.embeddings.end(), numbers, numbers + rows.size());
    std::ranges::fill(tokens.subspan(i, count), exec::kTokenExternal);
    i += count - 1;
  }
}

}  // namespace nereid::runtime
