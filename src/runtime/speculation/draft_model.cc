// DraftModel: choice of rows, and messages of its steps.
#include "runtime/speculation/draft_model.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "runtime/requests/sample_params.h"

namespace nereid::runtime {
namespace {

constexpr TokenId kFromDevice[] = {exec::kTokenOnDevice};

DraftCache::Text text_of(const sched::Sequence& sequence) {
  return {.root = sequence.spec().cache_salt,
          .tokens = sequence.tokens(),
          .num_prompt = sequence.num_prompt()};
}

}  // namespace

DraftModel::DraftModel(std::unique_ptr<exec::Runner> runner)
    : runner_(std::move(runner)), cache_(*runner_, /*copies_blocks=*/false) {}

std::vector<exec::MemoryItem> DraftModel::memory() const {
  std::vector<exec::MemoryItem> table;
  for (const exec::MemoryItem& item : runner_->memory())
    if (item.bytes > 0) table.push_back({"draft model: " + item.what, item.bytes});
  return table;
}

void DraftModel::propose(std::span<DraftQuestion> questions) {
  first_seconds_ = 0;
  if (failed_) return;
  const Time begin = now();
  cache_.begin_call();
  choose_rows(questions);
  if (rows_.empty()) return;
  if (const Status status = compute(begin); !status.ok()) {
    log_error("the draft model has failed, no more drafts: {}", message(status));
    failed_ = true;
    cache_.forget_all();
    for (DraftQuestion& question : questions) question.drafts.clear();
    return;
  }
  for (Row& row : rows_) cache_.publish(*row.entry);
}

// The sequence's entry, trimmed to the prefix that equals the known tokens.
DraftCache::Entry& DraftModel::entry_of(const sched::Sequence& sequence) {
  DraftCache::Entry& entry = cache_.find(sequence.id(), text_of(sequence));
  const auto known = sequence.tokens();
  const size_t most = std::min(entry.tokens.size(), known.size() - 1);
  size_t same = std::min(entry.num_known, most);
  while (same < most && entry.tokens[same] == known[same]) ++same;
  cache_.trim(entry, same);
  return entry;
}

// Rows with the fewest new tokens first, so that none waits for another one's prompt.
void DraftModel::choose_rows(std::span<DraftQuestion> questions) {
  const exec::RunnerLimits& limits = runner_->limits();
  candidates_.clear();
  rows_.clear();
  for (DraftQuestion& question : questions) {
    const sched::Sequence& sequence = *question.sequence;
    const size_t length = sequence.tokens().size();
    // It has no embeddings for the rows of a prompt table, and ends where its positions do.
    if (!sequence.spec().input_keys.empty() ||
        length >= static_cast<size_t>(limits.max_sequence_length))
      continue;
    DraftCache::Entry& entry = entry_of(sequence);
    candidates_.push_back({.question = &question,
                           .entry = &entry,
                           .num_new = static_cast<int32_t>(length - entry.tokens.size())});
  }
  std::ranges::stable_sort(candidates_, {}, &Row::num_new);
  int32_t room = limits.max_tokens;
  for (Row row : candidates_) {
    DraftQuestion* const question = row.question;
    const int32_t wanted = row.num_new;
    row.num_new = std::min(wanted, room);
    question->is_behind = row.num_new < wanted;
    if (row.num_new == 0 || rows_.size() == static_cast<size_t>(limits.max_rows)) continue;
    const auto end = static_cast<int32_t>(row.entry->tokens.size()) + row.num_new;
    if (!question->is_behind)
      row.num_drafts = std::min(question->most, limits.max_sequence_length - end);
    // The last draft is sampled and not computed.
    if (!cache_.reserve(*row.entry, end + std::max(0, row.num_drafts - 1))) {
      question->is_behind = false;
      continue;
    }
    room -= row.num_new;
    rows_.push_back(row);
  }
}

Status DraftModel::compute(Time begin) {
  int32_t most = 1;
  for (const Row& row : rows_) most = std::max(most, row.num_drafts);
  // One step in flight while the next is launched.
  ASSIGN_OR_RETURN(exec::Ticket flying, launch(0));
  Status status;
  for (int32_t number = 1; number <= most; ++number) {
    StatusOr<exec::Ticket> next = exec::Ticket();
    if (number < most && status.ok()) next = launch(number);
    status.Update(next.status());
    if (flying) status.Update(take(flying, number - 1));
    if (number == 1) first_seconds_ = seconds(now() - begin);
    if (!next.ok()) return status;
    flying = *std::move(next);
  }
  return status;
}

// Step 0 computes the new known tokens and samples draft 1; step i samples draft i + 1.
StatusOr<exec::Ticket> DraftModel::launch(int32_t number) {
  step_.clear();
  cache_.add_copies(step_);
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (number == 0) {
      add_first(i);
    } else if (number < rows_[i].num_drafts) {
      add_next(i, number);
    }
  }
  exec::encode(step_, message_);
  return runner_->launch(message_);
}

void DraftModel::add_first(size_t row) {
  const Row& r = rows_[row];
  const size_t start = r.entry->tokens.size();
  const auto known = r.question->sequence->tokens().subspan(start, r.num_new);
  add_row(row, known, static_cast<int32_t>(start), r.num_drafts > 0);
  if (r.num_drafts > 0)
    add_draft_params(*r.question->sequence, static_cast<int32_t>(row), runner_->vocab_size(),
                     /*drafts=*/{}, step_);
  r.entry->tokens.insert(r.entry->tokens.end(), known.begin(), known.end());
  r.entry->num_known = r.entry->tokens.size();
}

void DraftModel::add_next(size_t row, int32_t number) {
  const auto num_known = static_cast<int32_t>(rows_[row].question->sequence->tokens().size());
  add_row(row, kFromDevice, num_known + number - 1, true);
}

void DraftModel::add_row(size_t row, std::span<const TokenId> tokens, int32_t start, bool samples) {
  cache_.add_row(rows_[row].entry->table,
                 {.slot = static_cast<int32_t>(row),
                  .start = start,
                  .num_logits = samples ? 1 : 0,
                  .samples = samples ? 1 : 0},
                 tokens, step_);
}

// Takes the drafts sampled by step `number`.
Status DraftModel::take(exec::Ticket& ticket, int32_t number) {
  ASSIGN_OR_RETURN(const exec::StepResult results, runner_->wait(ticket));
  size_t next = 0;
  for (Row& row : rows_) {
    if (number > 0 && number >= row.num_drafts) continue;
    const exec::RowResult& result = results[next++];
    if (row.num_drafts == 0 || row.ended) continue;
    row.ended = !result.status.ok() || result.drawn.empty() || result.drawn[0].token < 0;
    if (row.ended) continue;
    // Step `number` has computed the previous draft.
    if (number > 0) row.entry->tokens.push_back(row.question->drafts.back());
    row.question->drafts.push_back(result.drawn[0].token);
  }
  return ok();
}

}  // namespace nereid::runtime
