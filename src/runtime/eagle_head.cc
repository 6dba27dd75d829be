// EagleHead: which positions it computes, and what its steps say.
#include "runtime/eagle_head.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/log.h"
#include "kernels/api/pack.h"
#include "runtime/sample_params.h"

namespace nereid::runtime {
namespace {

// Steps' worth of positions that may wait; a sequence that is behind by more begins anew.
constexpr size_t kMostWaitingSteps = 16;

}  // namespace

StatusOr<EmbeddingRows> EmbeddingRows::open(const std::filesystem::path& engine) {
  ASSIGN_OR_RETURN(io::EngineFile file, io::EngineFile::open(engine, io::Verify::kHeader));
  EmbeddingRows rows(std::move(file));
  const io::Plan& plan = rows.file_.plan();
  for (const io::Call& call : plan.calls) {
    const auto* embed = std::get_if<kernels::ids::Embed>(&call.op);
    if (!embed) continue;
    rows.table_ =
        io::view_of(plan.weights[static_cast<size_t>(embed->table)], rows.file_.blob().data());
    return rows;
  }
  return invalid_argument("{}: has no embeddings", engine.string());
}

void EmbeddingRows::add(TokenId token, std::vector<BF16>& out) const {
  for (int64_t c = 0; c < table_.k; ++c)
    out.push_back(to_bf16(kernels::weight_at(table_, token, c)));
}

EagleHead::EagleHead(std::unique_ptr<exec::Runner> runner, EmbeddingRows rows)
    : runner_(std::move(runner)),
      rows_of_tokens_(std::move(rows)),
      width_(static_cast<size_t>(rows_of_tokens_.width())),
      cache_(*runner_, /*copies_blocks=*/true) {}

std::vector<exec::MemoryItem> EagleHead::memory() const {
  std::vector<exec::MemoryItem> table;
  for (const exec::MemoryItem& item : runner_->memory())
    if (item.bytes > 0) table.push_back({"EAGLE head: " + item.what, item.bytes});
  return table;
}

void EagleHead::forget(RequestId id) {
  waiting_.erase(id);
  cache_.forget(id);
}

// Keeps the states of positions whose next token has been drawn or was known, as far as they are
// not kept or computed yet.
void EagleHead::landed(const sched::Row& row, const exec::RowResult& result) {
  if (result.hidden.empty() || failed_) return;
  const auto count = result.hidden.size() / width_;
  const auto end = static_cast<size_t>(row.end());
  const size_t begin = end - count;
  const size_t num_wrong = row.samples ? 1 + row.num_drafts - result.drawn.size() : 0;
  std::unique_ptr<Waiting>& waiting = waiting_[row.sequence->id()];
  if (!waiting) waiting = std::make_unique<Waiting>(Waiting{.first = begin});
  size_t known_to = waiting->first + num_waiting(*waiting);
  const size_t most = kMostWaitingSteps * static_cast<size_t>(runner_->limits().max_tokens);
  if (begin > known_to || num_waiting(*waiting) > most) {
    *waiting = {.first = begin};
    known_to = begin;
  }
  if (end - num_wrong <= known_to) return;
  const auto fresh =
      result.hidden.subspan((known_to - begin) * width_, (end - num_wrong - known_to) * width_);
  waiting->states.insert(waiting->states.end(), fresh.begin(), fresh.end());
}

void EagleHead::propose(std::span<DraftQuestion> questions) {
  if (failed_) return;
  cache_.begin_call();
  choose_rows(questions);
  if (rows_.empty()) return;
  if (const Status status = compute(); !status.ok()) {
    log_error("the EAGLE head fails, there are no more drafts: {}", message(status));
    failed_ = true;
    cache_.forget_all();
    waiting_.clear();
    for (DraftQuestion& question : questions) question.drafts.clear();
    return;
  }
  for (Row& row : rows_) cache_.publish(*row.entry, text_of(*row.question->sequence));
}

// Position t stands for token t + 1, behind token 0.
DraftCache::Text EagleHead::text_of(const sched::Sequence& sequence) {
  const auto known = sequence.tokens();
  root_ = fmt::format("{}:{}", known[0], sequence.spec().cache_salt);
  return {.root = root_, .tokens = known.subspan(1), .num_prompt = sequence.num_prompt() - 1};
}

void EagleHead::add_candidate(DraftQuestion& question) {
  const sched::Sequence& sequence = *question.sequence;
  const auto found = waiting_.find(sequence.id());
  const size_t num_known = sequence.tokens().size();
  // It has no embeddings for the rows of a prompt table.
  if (found == waiting_.end() || num_known < 2 || sequence.spec().prompt_table ||
      num_known >= static_cast<size_t>(runner_->limits().max_sequence_length))
    return;
  DraftCache::Entry& entry = cache_.find(sequence.id(), text_of(sequence));
  Waiting& waiting = *found->second;
  const size_t next = entry.tokens.size() + entry.num_missing;
  const size_t end = std::min(waiting.first + num_waiting(waiting), num_known - 1);
  if (waiting.first > next && num_waiting(waiting) > 0) {
    // The first token that is new to the model stands behind the last missing state, and says more
    // than the state does: the next state takes its place.
    --waiting.first;
    const std::vector<BF16> first(waiting.states.begin(),
                                  waiting.states.begin() + static_cast<ptrdiff_t>(width_));
    waiting.states.insert(waiting.states.begin(), first.begin(), first.end());
    entry.num_missing += waiting.first - next;
  }
  if (waiting.first < next) {
    const size_t num_done = std::min(next - waiting.first, num_waiting(waiting));
    waiting.states.erase(waiting.states.begin(),
                         waiting.states.begin() + static_cast<ptrdiff_t>(num_done * width_));
    waiting.first += num_done;
  }
  question.is_behind = end < num_known - 1;  // the rest of the prompt is being computed
  if (end <= waiting.first) return;
  candidates_.push_back({.question = &question,
                         .entry = &entry,
                         .waiting = &waiting,
                         .num_new = static_cast<int32_t>(end - waiting.first)});
}

// Those that have least to compute go first, so that none waits for another one's prompt.
void EagleHead::choose_rows(std::span<DraftQuestion> questions) {
  const exec::RunnerLimits& limits = runner_->limits();
  candidates_.clear();
  rows_.clear();
  for (DraftQuestion& question : questions) add_candidate(question);
  std::ranges::stable_sort(candidates_, {}, &Row::num_new);
  int32_t room = limits.max_tokens;
  for (Row& row : candidates_) {
    DraftQuestion* const question = row.question;
    const int32_t wanted = row.num_new;
    row.num_new = std::min(wanted, room);
    question->is_behind |= row.num_new < wanted;
    if (row.num_new == 0 || rows_.size() == static_cast<size_t>(limits.max_rows)) continue;
    const auto length = static_cast<int32_t>(question->sequence->tokens().size());
    if (!question->is_behind)
      row.num_drafts = std::min(question->most, limits.max_sequence_length - length);
    const auto end = static_cast<int32_t>(row.entry->tokens.size()) + row.num_new;
    if (!cache_.reserve(*row.entry, end + std::max(0, row.num_drafts - 1))) {
      question->is_behind = false;
      continue;
    }
    room -= row.num_new;
    rows_.push_back(std::move(row));
  }
}

// A step needs the tokens and states of the one before on the host, which puts its input together.
Status EagleHead::compute() {
  int32_t most = 1;
  for (const Row& row : rows_) most = std::max(most, row.num_drafts);
  for (int32_t number = 0; number < most; ++number) {
    ASSIGN_OR_RETURN(exec::Ticket ticket, launch(number));
    if (!ticket) return ok();
    RETURN_IF_ERROR(take(ticket, number));
  }
  return ok();
}

// Step 0 catches up and draws the first draft, step i draws the one after the i-th. Empty: nobody
// wants more.
StatusOr<exec::Ticket> EagleHead::launch(int32_t number) {
  step_.clear();
  cache_.add_copies(step_);
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (number == 0) {
      add_first(i);
    } else if (number < rows_[i].num_drafts && !rows_[i].ended) {
      add_next(i, number);
    }
  }
  if (step_.rows.empty()) return exec::Ticket();
  exec::encode(step_, message_);
  return runner_->launch(message_);
}

void EagleHead::add_first(size_t index) {
  Row& row = rows_[index];
  const sched::Sequence& sequence = *row.question->sequence;
  const auto slot = static_cast<int32_t>(index);
  const bool draws = row.num_drafts > 0;
  if (draws) add_draft_params(sequence, slot, runner_->vocab_size(), /*num_guessed=*/0, step_);
  DraftCache::Entry& entry = *row.entry;
  const auto num_new = static_cast<size_t>(row.num_new);
  const auto behind = sequence.tokens().subspan(row.waiting->first + 1, num_new);
  given_.assign(num_new, exec::kTokenGiven);
  cache_.add_row(entry,
                 {.slot = slot,
                  .start = static_cast<int32_t>(entry.tokens.size()),
                  .num_logits = draws ? 1 : 0,
                  .samples = draws ? 1 : 0,
                  .num_hidden = draws ? 1 : 0,
                  .num_skipped = static_cast<int32_t>(entry.num_missing) + 1},
                 given_, step_);
  auto& states = row.waiting->states;
  for (size_t i = 0; i < num_new; ++i) {
    rows_of_tokens_.add(behind[i], step_.embeddings);
    const auto state = std::span(states).subspan(i * width_, width_);
    step_.embeddings.insert(step_.embeddings.end(), state.begin(), state.end());
  }
  entry.tokens.insert(entry.tokens.end(), behind.begin(), behind.end());
  entry.num_known = entry.tokens.size();
  states.erase(states.begin(), states.begin() + static_cast<ptrdiff_t>(num_new * width_));
  row.waiting->first += num_new;
}

void EagleHead::add_next(size_t index, int32_t number) {
  Row& row = rows_[index];
  const TokenId given[] = {exec::kTokenGiven};
  cache_.add_row(*row.entry,
                 {.slot = static_cast<int32_t>(index),
                  .start = static_cast<int32_t>(row.entry->tokens.size()) + number - 1,
                  .num_logits = 1,
                  .samples = 1,
                  .num_hidden = 1,
                  .num_skipped = static_cast<int32_t>(row.entry->num_missing) + 1},
                 given, step_);
  rows_of_tokens_.add(row.question->drafts.back(), step_.embeddings);
  step_.embeddings.insert(step_.embeddings.end(), row.state.begin(), row.state.end());
}

Status EagleHead::take(exec::Ticket& ticket, int32_t number) {
  ASSIGN_OR_RETURN(const exec::StepResult results, runner_->wait(ticket));
  size_t next = 0;
  for (Row& row : rows_) {
    if (number > 0 && (number >= row.num_drafts || row.ended)) continue;
    const exec::RowResult& result = results[next++];
    if (row.num_drafts == 0) continue;
    row.ended = !result.status.ok() || result.drawn.empty() || result.drawn[0].token < 0;
    if (row.ended) continue;
    row.question->drafts.push_back(result.drawn[0].token);
    row.state.assign(result.hidden.begin(), result.hidden.end());
  }
  return ok();
}

}  // namespace nereid::runtime
