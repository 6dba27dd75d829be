// EagleHead: choice of rows, and messages of its steps.
#include "runtime/speculation/eagle_head.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "runtime/requests/sample_params.h"

namespace nereid::runtime {
namespace {

// In the message and its builder, in the staging area and on the device.
constexpr size_t kCopiesOfEmbeddings = 4;

// Limit of waiting positions, all sequences together, in steps of the head: two in flight, those of
// the turn, and leftovers of the head's step. A sequence that exceeds it starts anew.
constexpr size_t kMostWaitingSteps = 4;

// Positions with kept memory while a sequence decodes; longer backlogs without drafts are computed
// when many positions wait.
constexpr size_t kKeptStates = 16;

}  // namespace

EagleHead::EagleHead(std::unique_ptr<exec::Runner> runner, EmbeddingRows rows, TreeShape shape,
                     HeadInput input, int32_t vocab_size)
    : runner_(std::move(runner)),
      rows_of_tokens_(std::move(rows)),
      shape_(std::move(shape)),
      input_(std::move(input)),
      vocab_size_(vocab_size),
      vocabulary_(input_.tokens.empty()
                      ? std::nullopt
                      : std::optional<DraftVocabulary>(std::in_place, input_.tokens, vocab_size)),
      num_ranks_(shape_.num_ranks()),
      own_width_(static_cast<size_t>(rows_of_tokens_.width())),
      width_(own_width_ * static_cast<size_t>(input_.num_states)),
      cache_(*runner_, /*copies_blocks=*/true) {}

std::vector<exec::MemoryItem> EagleHead::memory() const {
  std::vector<exec::MemoryItem> table;
  for (const exec::MemoryItem& item : runner_->memory())
    if (item.bytes > 0)
      table.push_back({fmt::format("{} head: {}", name(), item.what), item.bytes});
  const auto step = static_cast<size_t>(runner_->limits().max_tokens);
  const size_t embedding = static_cast<size_t>(runner_->embedding_width());
  table.push_back({fmt::format("{} head: host states of the model", name()),
                   most_waiting() * width_ * sizeof(BF16)});
  table.push_back({fmt::format("{} head: host embeddings of a step", name()),
                   kCopiesOfEmbeddings * step * embedding * sizeof(BF16)});
  return table;
}

size_t EagleHead::most_waiting() const {
  return kMostWaitingSteps * static_cast<size_t>(runner_->limits().max_tokens);
}

void EagleHead::set_size(Waiting& waiting, size_t num_states) {
  num_waiting_ -= num_waiting(waiting);
  waiting.states.resize(num_states * width_);
  num_waiting_ += num_states;
}

void EagleHead::drop_front(Waiting& waiting, size_t count) {
  const size_t left = num_waiting(waiting) - count;
  std::copy(waiting.states.begin() + static_cast<ptrdiff_t>(count * width_), waiting.states.end(),
            waiting.states.begin());
  set_size(waiting, left);
  waiting.first += count;
  // A prompt chunk needs more memory than decoding.
  if (left == 0 && waiting.states.capacity() > kKeptStates * width_)
    std::vector<BF16>().swap(waiting.states);
}

void EagleHead::forget(RequestId id) {
  if (const auto found = waiting_.find(id); found != waiting_.end()) {
    set_size(*found->second, 0);
    waiting_.erase(found);
  }
  cache_.forget(id);
}

// Keeps the states of positions whose next token is known, unless kept or computed already.
void EagleHead::completed(const sched::ScheduledRow& row, const exec::RowResult& result) {
  // It has no embeddings for the rows of a prompt table.
  if (result.hidden.empty() || failed_ || !row.sequence->spec().input_keys.empty()) return;
  const size_t given_width = own_width_ * static_cast<size_t>(input_.num_external);
  const auto count = result.hidden.size() / given_width;
  const auto end = static_cast<size_t>(row.end());
  const size_t begin = end - count;
  const size_t num_wrong = row.samples ? 1 + row.num_drafts - result.drawn.size() : 0;
  std::unique_ptr<Waiting>& waiting = waiting_[row.sequence->id()];
  if (!waiting) waiting = std::make_unique<Waiting>(Waiting{.first = begin});
  size_t known_to = waiting->first + num_waiting(*waiting);
  if (begin > known_to || num_waiting_ + count > most_waiting()) {
    set_size(*waiting, 0);
    waiting->first = known_to = begin;
  }
  if (num_waiting_ + count > most_waiting()) {  // other sequences' states fill the limit
    waiting->first = end - num_wrong;
    return;
  }
  if (end - num_wrong <= known_to) return;
  const size_t num_sure = count - static_cast<size_t>(row.num_drafts);
  const size_t before = num_waiting(*waiting), fresh_end = end - num_wrong;
  set_size(*waiting, before + fresh_end - known_to);
  BF16* to = waiting->states.data() + before * width_;
  for (size_t i = known_to - begin; i < fresh_end - begin; ++i) {
    const size_t place =
        i < num_sure ? i : num_sure + static_cast<size_t>(result.path[i - num_sure]);
    const auto fresh = result.hidden.subspan(
        place * given_width + own_width_ * static_cast<size_t>(input_.first_state), width_);
    to = std::ranges::copy(fresh, to).out;
  }
}

void EagleHead::follow(std::span<const sched::Sequence* const> running) {
  if (num_waiting_ == 0) return;
  behind_.clear();
  for (const sched::Sequence* const sequence : running) {
    const auto waiting = waiting_.find(sequence->id());
    if (waiting == waiting_.end() || num_waiting(*waiting->second) == 0) continue;
    // States up to the last known token are computed with drafts; the next request may be late.
    const size_t count = num_waiting(*waiting->second);
    const bool is_prompt = waiting->second->first + count + 1 < sequence->tokens().size();
    if (is_prompt || (num_waiting_ > most_waiting() / 4 && count > kKeptStates))
      behind_.push_back({.sequence = sequence});
  }
  if (!behind_.empty()) answer(behind_);
}

void EagleHead::propose(std::span<DraftQuestion> questions) { answer(questions); }

void EagleHead::answer(std::span<DraftQuestion> questions) {
  first_seconds_ = 0;
  if (failed_) return;
  const Time begin = now();
  cache_.begin_call();
  choose_rows(questions);
  if (rows_.empty()) return;
  const Status status = compute(begin);
  for (Row& row : rows_)
    for (Branch& branch : row.branches) drop(branch);
  if (!status.ok()) {
    log_error("the {} head has failed, no more drafts: {}", name(), message(status));
    failed_ = true;
    cache_.forget_all();
    waiting_.clear();
    num_waiting_ = 0;
    return;
  }
  for (Row& row : rows_) {
    if (row.tree) row.tree->answer(row.question->drafts, row.question->parents);
    cache_.publish(*row.entry);
  }
}

// Position t has token t + 1; token 0 is part of the root.
DraftCache::Text EagleHead::text_of(const sched::Sequence& sequence) {
  const auto known = sequence.tokens();
  root_ = fmt::format("{}:{}", known[0], sequence.spec().cache_salt);
  return {.root = root_, .tokens = known.subspan(1), .num_prompt = sequence.num_prompt() - 1};
}

void EagleHead::add_candidate(DraftQuestion& question) {
  const sched::Sequence& sequence = *question.sequence;
  const auto found = waiting_.find(sequence.id());
  const size_t num_known = sequence.tokens().size();
  if (found == waiting_.end() || num_known < 2) return;
  if (num_known >= static_cast<size_t>(runner_->limits().max_sequence_length)) {
    drop_front(*found->second, num_waiting(*found->second));
    return;
  }
  DraftCache::Entry& entry = cache_.find(sequence.id(), text_of(sequence));
  Waiting& waiting = *found->second;
  const size_t next = entry.tokens.size() + entry.num_missing;
  // Without drafts the last position waits for a later call.
  const size_t end =
      std::min(waiting.first + num_waiting(waiting), num_known - (question.most == 0 ? 2 : 1));
  if (waiting.first > next && num_waiting(waiting) > 0) {
    // The first new token follows the last missing state. The token matters more than the state:
    // the next state is used in its place.
    --waiting.first;
    set_size(waiting, num_waiting(waiting) + 1);
    std::copy_backward(waiting.states.begin(),
                       waiting.states.end() - static_cast<ptrdiff_t>(width_), waiting.states.end());
    entry.num_missing += waiting.first - next;
  }
  if (waiting.first < next) {
    const size_t num_done = std::min(next - waiting.first, num_waiting(waiting));
    drop_front(waiting, num_done);
  }
  question.is_behind = end < num_known - 1;  // false: all known tokens are computed in this call
  if (end <= waiting.first) return;
  candidates_.push_back({.question = &question,
                         .entry = &entry,
                         .waiting = &waiting,
                         .num_new = static_cast<int32_t>(end - waiting.first)});
}

// Rows with the fewest new positions first, so that none waits for another one's prompt.
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
      row.tree.emplace(shape_, question->most, limits.max_sequence_length - length);
    const auto end = static_cast<int32_t>(row.entry->tokens.size()) + row.num_new;
    if (!cache_.reserve(*row.entry, end)) {
      question->is_behind = false;
      continue;
    }
    row.branches.emplace_back();
    room -= row.num_new;
    rows_.push_back(std::move(row));
  }
}

// No overlap: a step's input is built on the host from the previous step's tokens and states.
Status EagleHead::compute(Time begin) {
  for (;;) {
    ASSIGN_OR_RETURN(exec::Ticket ticket, launch());
    if (!ticket) return ok();
    RETURN_IF_ERROR(take(ticket));
    for (Row& row : rows_) branch_out(row);
    if (first_seconds_ == 0) first_seconds_ = seconds(now() - begin);
  }
}

// The first step computes all new positions and yields the first candidates, each later step the
// next depth's. Empty ticket: done.
StatusOr<exec::Ticket> EagleHead::launch() {
  step_.clear();
  cache_.add_copies(step_);
  for (Row& row : rows_)
    for (const Branch& branch : row.branches) {
      if (branch.node == GrowingTree::kRoot) {
        add_first(row);
      } else {
        add_next(row, branch);
      }
    }
  if (step_.rows.empty()) return exec::Ticket();
  exec::encode(step_, message_);
  return runner_->launch(message_);
}

// Each row of a step has its own slot.
void EagleHead::add_params(const Row& row, const Branch& branch) {
  const size_t num_history = step_.history_tokens.size();
  add_draft_params(*row.question->sequence, static_cast<int32_t>(step_.rows.size()), vocab_size_,
                   row.tree->path(branch.node), step_, num_ranks_ > 1 ? num_ranks_ : 0);
  if (vocabulary_) vocabulary_->translate(step_, num_history);
}

void EagleHead::add_zeros(int32_t num_states) {
  step_.embeddings.resize(step_.embeddings.size() + own_width_ * static_cast<size_t>(num_states));
}

void EagleHead::add_first(Row& row) {
  const sched::Sequence& sequence = *row.question->sequence;
  const int32_t draws = row.tree ? 1 : 0;
  if (draws) add_params(row, row.branches[0]);
  DraftCache::Entry& entry = *row.entry;
  const auto num_new = static_cast<size_t>(row.num_new);
  const auto behind = sequence.tokens().subspan(row.waiting->first + 1, num_new);
  given_.assign(num_new, exec::kTokenExternal);
  cache_.add_row(entry.table,
                 {.slot = static_cast<int32_t>(step_.rows.size()),
                  .start = static_cast<int32_t>(entry.tokens.size()),
                  .num_logits = draws,
                  .samples = draws,
                  .num_hidden = draws,
                  .position_offset = static_cast<int32_t>(entry.num_missing) + 1},
                 given_, step_);
  const auto& states = row.waiting->states;
  for (size_t i = 0; i < num_new; ++i) {
    rows_of_tokens_.add(behind[i], step_.embeddings);
    const auto state = std::span(states).subspan(i * width_, width_);
    step_.embeddings.insert(step_.embeddings.end(), state.begin(), state.end());
    if (input_.has_own) add_zeros(1);
  }
  entry.tokens.insert(entry.tokens.end(), behind.begin(), behind.end());
  entry.num_known = entry.tokens.size();
  drop_front(*row.waiting, num_new);
}

void EagleHead::add_next(const Row& row, const Branch& branch) {
  add_params(row, branch);
  const TokenId given[] = {exec::kTokenExternal};
  cache_.add_row(
      branch.table ? *branch.table : row.entry->table,
      {.slot = static_cast<int32_t>(step_.rows.size()),
       .start = static_cast<int32_t>(row.entry->tokens.size()) + row.tree->depth(branch.node) - 1,
       .num_logits = 1,
       .samples = 1,
       .num_hidden = 1,
       .position_offset = static_cast<int32_t>(row.entry->num_missing) + 1},
      given, step_);
  rows_of_tokens_.add(row.tree->token(branch.node), step_.embeddings);
  if (input_.has_own) add_zeros(input_.num_states);
  step_.embeddings.insert(step_.embeddings.end(), branch.state.begin(), branch.state.end());
}

Status EagleHead::take(exec::Ticket& ticket) {
  ASSIGN_OR_RETURN(const exec::StepResult results, runner_->wait(ticket));
  size_t next = 0;
  for (Row& row : rows_)
    for (Branch& branch : row.branches) {
      const exec::RowResult& result = results[next++];
      if (!row.tree) continue;
      find_token_candidates(result, token_candidates_);
      if (vocabulary_)
        for (TokenCandidate& candidate : token_candidates_)
          candidate.token = vocabulary_->model_token(candidate.token);
      row.tree->add(branch.node, token_candidates_);
      branch.state.assign(result.hidden.begin(), result.hidden.end());
    }
  return ok();
}

// Branches of the next depth, as many as there are rows. A parent's first child continues in its
// blocks, the others in forks of them.
void EagleHead::branch_out(Row& row) {
  std::vector<Branch> old = std::exchange(row.branches, {});
  std::vector<int32_t> nodes;
  if (row.tree) nodes = row.tree->next();
  nodes.resize(
      std::min(nodes.size(), static_cast<size_t>(runner_->limits().max_rows) / rows_.size()));
  const auto table_of = [&](Branch& branch) -> sched::BlockTable& {
    return branch.table ? *branch.table : row.entry->table;
  };
  const auto num_known = static_cast<int32_t>(row.entry->tokens.size());
  std::vector<Branch*> parents;
  for (const int32_t node : nodes) {
    Branch& parent = *std::ranges::find(old, row.tree->parent(node), &Branch::node);
    Branch& branch = row.branches.emplace_back(Branch{.node = node, .state = parent.state});
    if (std::ranges::find(parents, &parent) != parents.end())
      branch.table = cache_.fork(table_of(parent), num_known + row.tree->depth(node) - 1);
    parents.push_back(&parent);
  }
  for (size_t i = 0; i < parents.size(); ++i)
    if (!row.branches[i].table) row.branches[i].table = std::exchange(parents[i]->table, {});
  for (Branch& branch : old) drop(branch);
  std::erase_if(row.branches, [&](Branch& branch) {
    const int32_t start = num_known + row.tree->depth(branch.node) - 1;
    if (cache_.reserve(table_of(branch), start, start + 1)) return false;
    drop(branch);
    return true;
  });
}

void EagleHead::drop(Branch& branch) {
  if (branch.table) cache_.drop(*branch.table);
  branch.table.reset();
}

}  // namespace nereid::runtime
