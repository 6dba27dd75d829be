#include "runtime/speculation/medusa_heads.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "runtime/requests/sample_params.h"

namespace nereid::runtime {
namespace {

constexpr TokenId kFromState[] = {exec::kTokenExternal};

}  // namespace

MedusaHeads::MedusaHeads(std::vector<std::unique_ptr<exec::Runner>> heads, DraftTree tree)
    : heads_(std::move(heads)),
      tree_(std::move(tree)),
      is_chain_(tree_.is_chain()),
      num_ranks_(heads_.size()),
      token_candidates_(heads_.size()) {
  NEREID_CHECK(tree_.depth() <= static_cast<int32_t>(heads_.size()));
  for (const DraftTree::Node& node : tree_.nodes) {
    int32_t& num = num_ranks_[static_cast<size_t>(node.depth - 1)];
    num = std::max(num, node.rank + 1);
  }
}

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

void MedusaHeads::propose(std::span<DraftQuestion> questions) {
  if (failed_) return;
  choose_rows(questions);
  if (rows_.empty()) return;
  const Status status = compute();
  if (status.ok()) return;
  log_error("the Medusa heads have failed, no more drafts: {}", message(status));
  failed_ = true;
  states_.forget_all();
  for (DraftQuestion& question : questions) question.drafts.clear();
}

void MedusaHeads::choose_rows(std::span<DraftQuestion> questions) {
  const exec::RunnerLimits& limits = heads_[0]->limits();
  rows_.clear();
  for (DraftQuestion& question : questions) {
    const sched::Sequence& sequence = *question.sequence;
    const auto length = static_cast<int32_t>(sequence.tokens().size());
    Row row{.question = &question, .state = states_.find(sequence)};
    if (!row.state) continue;
    for (const DraftTree::Node& node : tree_.nodes) {
      if (row.num_drafts == question.most || length + node.depth > limits.max_sequence_length + 1)
        break;
      ++row.num_drafts;
      row.depth = std::max(row.depth, node.depth);
    }
    if (row.num_drafts > 0 && rows_.size() < static_cast<size_t>(limits.max_rows))
      rows_.push_back(row);
  }
}

Status MedusaHeads::compute() {
  const auto num_heads = static_cast<size_t>(std::ranges::max(rows_, {}, &Row::depth).depth);
  std::vector<exec::Ticket> flying;
  Status status;
  for (size_t head = 0; head < num_heads && status.ok(); ++head) {
    auto ticket = launch(head);
    status = ticket.status();
    if (ticket.ok()) flying.push_back(*std::move(ticket));
  }
  for (size_t head = 0; head < flying.size(); ++head) status.Update(take(flying[head], head));
  for (size_t i = 0; i < rows_.size() && status.ok(); ++i) answer(i);
  return status;
}

StatusOr<exec::Ticket> MedusaHeads::launch(size_t head) {
  step_.clear();
  const auto ahead = static_cast<int32_t>(head);
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    if (row.depth <= ahead) continue;
    const sched::Sequence& sequence = *row.question->sequence;
    const auto slot = static_cast<int32_t>(i);
    const int32_t num_top = num_ranks_[head] > 1 ? num_ranks_[head] : 0;
    add_draft_params(sequence, slot, heads_[head]->vocab_size(),
                     std::vector<TokenId>(head, kUnknownToken), step_, num_top);
    const auto position = static_cast<int32_t>(sequence.tokens().size()) + ahead;
    step_.add({.slot = slot, .start = position - 1, .num_logits = 1, .samples = 1}, kFromState, {},
              0, heads_[head]->limits().block_tokens);
    step_.embeddings.insert(step_.embeddings.end(), row.state->begin(), row.state->end());
  }
  exec::encode(step_, message_);
  return heads_[head]->launch(message_);
}

Status MedusaHeads::take(exec::Ticket& ticket, size_t head) {
  ASSIGN_OR_RETURN(const exec::StepResult results, heads_[head]->wait(ticket));
  token_candidates_[head].resize(std::max(token_candidates_[head].size(), rows_.size()));
  size_t next = 0;
  for (size_t i = 0; i < rows_.size(); ++i)
    if (rows_[i].depth > static_cast<int32_t>(head)) add_token_candidates(head, i, results[next++]);
  return ok();
}

// Candidates of a head for a row: the sampled token, then the likeliest others; may be empty.
void MedusaHeads::add_token_candidates(size_t head, size_t row, const exec::RowResult& result) {
  std::vector<TokenId>& candidates = token_candidates_[head][row];
  candidates.clear();
  if (!result.status.ok() || result.drawn.empty() || result.drawn[0].token < 0) return;
  candidates.push_back(result.drawn[0].token);
  for (const kernels::TopToken& top : result.top_of(0))
    if (top.token != candidates[0]) candidates.push_back(top.token);
}

// The tree's nodes that have candidates.
void MedusaHeads::answer(size_t row) {
  const Row& r = rows_[row];
  for (const DraftTree::Node& node :
       std::span(tree_.nodes).first(static_cast<size_t>(r.num_drafts))) {
    const auto& candidates = token_candidates_[static_cast<size_t>(node.depth - 1)][row];
    if (static_cast<size_t>(node.rank) >= candidates.size()) return;
    r.question->drafts.push_back(candidates[static_cast<size_t>(node.rank)]);
    if (!is_chain_) r.question->parents.push_back(node.parent);
  }
}

}  // namespace nereid::runtime
