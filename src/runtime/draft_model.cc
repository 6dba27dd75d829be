// DraftModel: which positions it computes, and what its steps say.
#include "runtime/draft_model.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "runtime/sample_params.h"

namespace nereid::runtime {
namespace {

constexpr TokenId kFromDevice[] = {exec::kTokenOnDevice};

sched::PoolConfig pool_of(const exec::Runner& runner) {
  sched::PoolConfig config{.tokens_per_block = runner.limits().block_tokens,
                           .enable_partial_reuse = false};
  for (const exec::CacheGroup& group : runner.groups())
    config.groups.push_back({.num_blocks = runner.limits().num_blocks[config.groups.size()],
                             .window = group.window,
                             .sink = group.sink});
  return config;
}

}  // namespace

DraftModel::DraftModel(std::unique_ptr<exec::Runner> runner)
    : runner_(std::move(runner)), pool_(pool_of(*runner_)) {}

std::vector<exec::MemoryItem> DraftModel::memory() const {
  std::vector<exec::MemoryItem> table;
  for (const exec::MemoryItem& item : runner_->memory())
    if (item.bytes > 0) table.push_back({"draft model: " + item.what, item.bytes});
  return table;
}

void DraftModel::forget(RequestId id) {
  const auto found = cached_.find(id);
  if (found == cached_.end()) return;
  if (!found->second->table.empty()) pool_.release(found->second->table, sched::Release::kKeep);
  cached_.erase(found);
}

void DraftModel::release_all(sched::Release how) {
  for (auto& [id, cached] : cached_)
    if (!cached->table.empty()) pool_.release(cached->table, how);
  cached_.clear();
}

void DraftModel::propose(std::span<DraftQuestion> questions) {
  if (failed_) return;
  ++num_calls_;
  choose_rows(questions);
  if (rows_.empty()) return;
  if (const Status status = compute(); !status.ok()) {
    log_error("the draft model fails, there are no more drafts: {}", message(status));
    failed_ = true;
    release_all(sched::Release::kForget);
    for (DraftQuestion& question : questions) question.drafts.clear();
    return;
  }
  for (Row& row : rows_) publish(row);
}

// Of a new sequence: what another one has left.
DraftModel::Cached& DraftModel::cached_for(const sched::Sequence& sequence) {
  std::unique_ptr<Cached>& cached = cached_[sequence.id()];
  if (!cached) cached = std::make_unique<Cached>();
  cached->asked_at = num_calls_;
  const auto known = sequence.tokens();
  if (!cached->table.empty()) {
    follow(*cached, known);
    return *cached;
  }
  // All but the last token, behind which the first draft comes.
  sched::Contents wanted = contents(sequence, *cached);
  wanted.tokens = known.first(known.size() - 1);
  wanted.keys = wanted.keys.first(wanted.tokens.size() / pool_.tokens_per_block());
  const sched::PrefixHit hit = pool_.match(wanted);
  const std::vector<sched::Claim> claims(pool_.num_groups(), {.num_tokens = hit.num_tokens});
  NEREID_CHECK(pool_.admit(cached->table, hit, wanted, claims));
  cached->num_known = static_cast<size_t>(hit.num_tokens);
  cached->tokens.assign(known.begin(), known.begin() + hit.num_tokens);
  return *cached;
}

// Takes back what was computed for other tokens than those that are known now.
void DraftModel::follow(Cached& cached, std::span<const TokenId> known) {
  const size_t most = std::min(cached.tokens.size(), known.size() - 1);
  size_t same = std::min(cached.num_known, most);
  while (same < most && cached.tokens[same] == known[same]) ++same;
  cached.tokens.resize(same);
  cached.num_known = same;
  pool_.trim(cached.table, static_cast<int32_t>(same));
}

sched::Contents DraftModel::contents(const sched::Sequence& sequence, Cached& cached) const {
  const auto size = static_cast<size_t>(pool_.tokens_per_block());
  const auto known = sequence.tokens();
  while ((cached.keys.size() + 1) * size <= known.size()) {
    const sched::BlockKey parent =
        cached.keys.empty() ? sched::root_key(sequence.spec().cache_salt) : cached.keys.back();
    cached.keys.push_back(
        sched::block_key(parent, {known.subspan(cached.keys.size() * size, size)}));
  }
  return {.root = sequence.spec().cache_salt,
          .keys = cached.keys,
          .tokens = known,
          .num_prompt = sequence.num_prompt()};
}

// Those that have least to compute go first, so that none waits for another one's prompt.
void DraftModel::choose_rows(std::span<DraftQuestion> questions) {
  const exec::RunnerLimits& limits = runner_->limits();
  candidates_.clear();
  rows_.clear();
  for (DraftQuestion& question : questions) {
    const sched::Sequence& sequence = *question.sequence;
    const size_t length = sequence.tokens().size();
    // It has no embeddings for the rows of a prompt table, and ends where its positions do.
    if (sequence.spec().prompt_table || length >= static_cast<size_t>(limits.max_sequence_length))
      continue;
    Cached& cached = cached_for(sequence);
    candidates_.push_back({.question = &question,
                           .cached = &cached,
                           .num_new = static_cast<int32_t>(length - cached.tokens.size())});
  }
  std::ranges::stable_sort(candidates_, {}, &Row::num_new);
  int32_t room = limits.max_tokens;
  for (Row row : candidates_) {
    DraftQuestion* const question = row.question;
    const int32_t wanted = row.num_new;
    row.num_new = std::min(wanted, room);
    question->is_behind = row.num_new < wanted;
    if (row.num_new == 0 || rows_.size() == static_cast<size_t>(limits.max_rows)) continue;
    const auto end = static_cast<int32_t>(row.cached->tokens.size()) + row.num_new;
    if (!question->is_behind)
      row.num_drafts = std::min(question->most, limits.max_sequence_length - end);
    // The last draft is drawn and not computed.
    if (!reserve(*row.cached, end + std::max(0, row.num_drafts - 1))) {
      question->is_behind = false;
      continue;
    }
    room -= row.num_new;
    rows_.push_back(row);
  }
}

bool DraftModel::reserve(Cached& cached, int32_t num_tokens) {
  const auto computed = static_cast<int32_t>(cached.tokens.size());
  while (!pool_.reserve(cached.table, computed, num_tokens))
    if (!give_up_oldest()) return false;
  return true;
}

// Of what this call does not look at.
bool DraftModel::give_up_oldest() {
  const auto age = [](const auto& entry) { return entry.second->asked_at; };
  const auto oldest = std::ranges::min_element(cached_, {}, age);
  if (oldest == cached_.end() || oldest->second->asked_at == num_calls_) return false;
  if (!oldest->second->table.empty()) pool_.release(oldest->second->table, sched::Release::kKeep);
  cached_.erase(oldest);
  return true;
}

Status DraftModel::compute() {
  int32_t most = 1;
  for (const Row& row : rows_) most = std::max(most, row.num_drafts);
  // One step is launched while the one before it runs.
  ASSIGN_OR_RETURN(exec::Ticket flying, launch(0));
  Status status;
  for (int32_t number = 1; number <= most; ++number) {
    StatusOr<exec::Ticket> next = exec::Ticket();
    if (number < most && status.ok()) next = launch(number);
    status.Update(next.status());
    if (flying) status.Update(take(flying, number - 1));
    if (!next.ok()) return status;
    flying = *std::move(next);
  }
  return status;
}

// Step 0 catches up and draws the first draft, step i draws the one after the i-th.
StatusOr<exec::Ticket> DraftModel::launch(int32_t number) {
  step_.clear();
  for (const sched::BlockCopy& copy : pool_.take_copies())
    step_.copies.push_back({copy.from, copy.to, copy.group});
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
  const size_t start = r.cached->tokens.size();
  const auto known = r.question->sequence->tokens().subspan(start, r.num_new);
  add_row(row, known, static_cast<int32_t>(start), r.num_drafts > 0);
  if (r.num_drafts > 0)
    add_draft_params(*r.question->sequence, static_cast<int32_t>(row), runner_->vocab_size(),
                     /*num_guessed=*/0, step_);
  r.cached->tokens.insert(r.cached->tokens.end(), known.begin(), known.end());
  r.cached->num_known = r.cached->tokens.size();
}

void DraftModel::add_next(size_t row, int32_t number) {
  const auto num_known = static_cast<int32_t>(rows_[row].question->sequence->tokens().size());
  add_row(row, kFromDevice, num_known + number - 1, true);
}

void DraftModel::add_row(size_t row, std::span<const TokenId> tokens, int32_t start, bool samples) {
  exec::StepRow out{.slot = static_cast<int32_t>(row),
                    .start = start,
                    .num_logits = samples ? 1 : 0,
                    .samples = samples ? 1 : 0};
  exec::PerGroup<std::span<const int32_t>> tables;
  const sched::BlockTable& table = rows_[row].cached->table;
  for (size_t g = 0; g < table.groups.size(); ++g) tables[g] = table.groups[g].blocks;
  step_.add(out, tokens, tables, table.groups.size(), runner_->limits().block_tokens);
}

// What step `number` has drawn.
Status DraftModel::take(exec::Ticket& ticket, int32_t number) {
  ASSIGN_OR_RETURN(const exec::StepResult results, runner_->wait(ticket));
  size_t next = 0;
  for (Row& row : rows_) {
    if (number > 0 && number >= row.num_drafts) continue;
    const exec::RowResult& result = results[next++];
    if (row.num_drafts == 0 || row.ended) continue;
    row.ended = !result.status.ok() || result.drawn.empty() || result.drawn[0].token < 0;
    if (row.ended) continue;
    // The step has computed the draft before this one.
    if (number > 0) row.cached->tokens.push_back(row.question->drafts.back());
    row.question->drafts.push_back(result.drawn[0].token);
  }
  return ok();
}

// Lets others find what is known to be said, and gives back what no later row looks at.
void DraftModel::publish(Row& row) {
  Cached& cached = *row.cached;
  const auto num_known = static_cast<int32_t>(cached.num_known);
  if (num_known / pool_.tokens_per_block() > cached.table.num_published &&
      !cached.table.groups[0].has_holes)
    pool_.publish(cached.table, contents(*row.question->sequence, cached), num_known);
  pool_.drop_unseen(cached.table, num_known - 1);
}

}  // namespace nereid::runtime
