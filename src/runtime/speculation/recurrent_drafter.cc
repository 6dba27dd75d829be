#include "runtime/speculation/recurrent_drafter.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "runtime/requests/sample_params.h"

namespace nereid::runtime {

RecurrentDrafter::RecurrentDrafter(std::unique_ptr<exec::Runner> runner, EmbeddingRows rows,
                                   TreeShape shape)
    : runner_(std::move(runner)),
      rows_of_tokens_(std::move(rows)),
      shape_(std::move(shape)),
      width_(static_cast<size_t>(rows_of_tokens_.width())) {
  NEREID_CHECK(runner_->embedding_width() == 3 * rows_of_tokens_.width());
}

std::vector<exec::MemoryItem> RecurrentDrafter::memory() const {
  std::vector<exec::MemoryItem> table;
  for (const exec::MemoryItem& item : runner_->memory())
    if (item.bytes > 0) table.push_back({"ReDrafter head: " + item.what, item.bytes});
  return table;
}

void RecurrentDrafter::propose(std::span<DraftQuestion> questions) {
  if (failed_) return;
  choose_rows(questions);
  if (rows_.empty()) return;
  const Status status = compute();
  if (!status.ok()) {
    log_error("the ReDrafter head has failed, no more drafts: {}", message(status));
    failed_ = true;
    states_.forget_all();
    return;
  }
  for (Row& row : rows_) row.tree.answer(row.question->drafts, row.question->parents);
}

void RecurrentDrafter::choose_rows(std::span<DraftQuestion> questions) {
  const exec::RunnerLimits& limits = runner_->limits();
  rows_.clear();
  for (DraftQuestion& question : questions) {
    const sched::Sequence& sequence = *question.sequence;
    const auto length = static_cast<int32_t>(sequence.tokens().size());
    const std::vector<BF16>* const state = states_.find(sequence);
    if (!state || length >= limits.max_sequence_length ||
        rows_.size() == static_cast<size_t>(limits.max_rows))
      continue;
    rows_.push_back({.question = &question,
                     .state = state,
                     .tree = {shape_, question.most, limits.max_sequence_length - length},
                     .beams = std::vector<Beam>(1)});
  }
}

// One step per depth without overlap: a step's input is built on the host from the previous step's
// tokens and states.
Status RecurrentDrafter::compute() {
  for (;;) {
    step_.clear();
    for (const Row& row : rows_)
      for (const Beam& beam : row.beams) add(row, beam);
    if (step_.rows.empty()) return ok();
    exec::encode(step_, message_);
    ASSIGN_OR_RETURN(exec::Ticket ticket, runner_->launch(message_));
    RETURN_IF_ERROR(take(ticket));
    for (Row& row : rows_) grow(row);
  }
}

// Each row of a step has its own slot.
void RecurrentDrafter::add(const Row& row, const Beam& beam) {
  const sched::Sequence& sequence = *row.question->sequence;
  const auto slot = static_cast<int32_t>(step_.rows.size());
  const std::vector<TokenId> path = row.tree.path(beam.node);
  const int32_t num_ranks = shape_.num_ranks();
  add_draft_params(sequence, slot, runner_->vocab_size(), path, step_,
                   num_ranks > 1 ? num_ranks : 0);
  const TokenId given[] = {exec::kTokenExternal};
  const auto position = static_cast<int32_t>(sequence.tokens().size() + path.size());
  step_.add({.slot = slot, .start = position - 1, .num_logits = 1, .samples = 1, .num_hidden = 1},
            given, {}, 0, runner_->limits().block_tokens);
  rows_of_tokens_.add(path.empty() ? sequence.tokens().back() : path.back(), step_.embeddings);
  const size_t end = step_.embeddings.size() + width_;
  step_.embeddings.insert(step_.embeddings.end(), beam.own.begin(), beam.own.end());
  step_.embeddings.resize(end);
  step_.embeddings.insert(step_.embeddings.end(), row.state->begin(), row.state->end());
}

Status RecurrentDrafter::take(exec::Ticket& ticket) {
  ASSIGN_OR_RETURN(const exec::StepResult results, runner_->wait(ticket));
  size_t next = 0;
  for (Row& row : rows_)
    for (Beam& beam : row.beams) {
      const exec::RowResult& result = results[next++];
      find_token_candidates(result, token_candidates_);
      row.tree.add(beam.node, token_candidates_);
      beam.own.assign(result.hidden.begin(), result.hidden.end());
    }
  return ok();
}

// The beams of the next depth, as many as there are rows.
void RecurrentDrafter::grow(Row& row) {
  if (row.beams.empty()) return;
  const std::vector<Beam> old = std::exchange(row.beams, {});
  std::vector<int32_t> nodes = row.tree.next();
  nodes.resize(
      std::min(nodes.size(), static_cast<size_t>(runner_->limits().max_rows) / rows_.size()));
  for (const int32_t node : nodes) {
    const auto parent = std::ranges::find(old, row.tree.parent(node), &Beam::node);
    row.beams.push_back({.node = node, .own = parent->own});
  }
}

}  // namespace nereid::runtime
