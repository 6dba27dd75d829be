#include "runtime/medusa_heads.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "runtime/sample_params.h"

namespace nereid::runtime {
namespace {

constexpr TokenId kFromState[] = {exec::kTokenGiven};

}  // namespace

MedusaHeads::MedusaHeads(std::vector<std::unique_ptr<exec::Runner>> heads)
    : heads_(std::move(heads)) {}

std::vector<exec::MemoryItem> MedusaHeads::memory() const {
  std::vector<exec::MemoryItem> table;
  for (const auto& head : heads_) {
    const std::vector<exec::MemoryItem> own = head->memory();
    if (table.empty()) table.resize(own.size());
    for (size_t i = 0; i < own.size(); ++i)
      table[i] = {"Medusa heads: " + own[i].what, table[i].bytes + own[i].bytes};
  }
  std::erase_if(table, [](const exec::MemoryItem& item) { return item.bytes == 0; });
  return table;
}

// Keeps the state of the last token drawn.
void MedusaHeads::landed(const sched::Row& row, const exec::RowResult& result) {
  if (result.hidden.empty()) return;
  const size_t num_drawn = result.drawn.size();
  const auto width = static_cast<size_t>(heads_[0]->embedding_width());
  const auto drawn = result.hidden.last(static_cast<size_t>(1 + row.num_drafts) * width);
  const auto last = drawn.subspan((num_drawn - 1) * width, width);
  State& state = states_[row.sequence->id()];
  state.num_known = static_cast<size_t>(row.first_drawn()) + num_drawn;
  state.hidden.assign(last.begin(), last.end());
}

void MedusaHeads::propose(std::span<DraftQuestion> questions) {
  if (failed_) return;
  choose_rows(questions);
  if (rows_.empty()) return;
  const Status status = compute();
  if (status.ok()) return;
  log_error("the Medusa heads fail, there are no more drafts: {}", message(status));
  failed_ = true;
  states_.clear();
  for (DraftQuestion& question : questions) question.drafts.clear();
}

void MedusaHeads::choose_rows(std::span<DraftQuestion> questions) {
  const exec::RunnerLimits& limits = heads_[0]->limits();
  const auto num_heads = static_cast<int32_t>(heads_.size());
  rows_.clear();
  for (DraftQuestion& question : questions) {
    const sched::Sequence& sequence = *question.sequence;
    const auto length = static_cast<int32_t>(sequence.tokens().size());
    const auto found = states_.find(sequence.id());
    // Of what was drawn before it was paused, or beside a token that is not known yet.
    if (found == states_.end() || found->second.num_known != sequence.tokens().size()) continue;
    const int32_t count =
        std::min({question.most, num_heads, limits.max_sequence_length - length + 1});
    if (count > 0 && rows_.size() < static_cast<size_t>(limits.max_rows))
      rows_.push_back({.question = &question, .state = &found->second, .num_drafts = count});
  }
}

Status MedusaHeads::compute() {
  const auto num_heads =
      static_cast<size_t>(std::ranges::max(rows_, {}, &Row::num_drafts).num_drafts);
  std::vector<exec::Ticket> flying;
  Status status;
  for (size_t head = 0; head < num_heads && status.ok(); ++head) {
    auto ticket = launch(head);
    status = ticket.status();
    if (ticket.ok()) flying.push_back(*std::move(ticket));
  }
  for (size_t head = 0; head < flying.size(); ++head) status.Update(take(flying[head], head));
  return status;
}

StatusOr<exec::Ticket> MedusaHeads::launch(size_t head) {
  step_.clear();
  const auto ahead = static_cast<int32_t>(head);
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    if (row.num_drafts <= ahead) continue;
    const sched::Sequence& sequence = *row.question->sequence;
    const auto slot = static_cast<int32_t>(i);
    add_draft_params(sequence, slot, heads_[head]->vocab_size(), ahead, step_);
    const auto position = static_cast<int32_t>(sequence.tokens().size()) + ahead;
    step_.add({.slot = slot, .start = position - 1, .num_logits = 1, .samples = 1}, kFromState, {},
              0, heads_[head]->limits().block_tokens);
    step_.embeddings.insert(step_.embeddings.end(), row.state->hidden.begin(),
                            row.state->hidden.end());
  }
  exec::encode(step_, message_);
  return heads_[head]->launch(message_);
}

Status MedusaHeads::take(exec::Ticket& ticket, size_t head) {
  ASSIGN_OR_RETURN(const exec::StepResult results, heads_[head]->wait(ticket));
  size_t next = 0;
  for (Row& row : rows_) {
    if (row.num_drafts <= static_cast<int32_t>(head)) continue;
    const exec::RowResult& result = results[next++];
    if (row.ended) continue;
    row.ended = !result.status.ok() || result.drawn.empty() || result.drawn[0].token < 0;
    if (!row.ended) row.question->drafts.push_back(result.drawn[0].token);
  }
  return ok();
}

}  // namespace nereid::runtime
