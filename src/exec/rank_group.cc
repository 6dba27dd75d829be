#include "exec/rank_group.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/queue.h"
#include "exec/step_message.h"

namespace nereid::exec {
namespace {

// The group's tickets have no event of their own.
class GroupEvent : public Event {
 public:
  Status wait() override { return ok(); }
  bool done() override { return false; }
};

}  // namespace

// Launches and waits for one rank's steps, in order. While it is settled, its rank's runner may be
// called by the group's thread.
class RankGroup::RankThread {
 public:
  RankThread(RankGroup& group, size_t rank)
      : group_(group), rank_(rank), thread_([this] { work(); }) {}
  ~RankThread() {
    tasks_.close();
    thread_.join();
  }

  void launch(Step& step) { post({&step, /*launches=*/true}); }
  void wait(Step& step) { post({&step, /*launches=*/false}); }

  // Blocks until all that was posted is done.
  void settle() {
    std::unique_lock lock(mutex_);
    settled_.wait(lock, [&] { return num_posted_ == num_done_; });
  }

 private:
  struct Task {
    Step* step = nullptr;
    bool launches = false;
  };

  void post(Task task) {
    {
      std::lock_guard lock(mutex_);
      ++num_posted_;
    }
    NEREID_CHECK(tasks_.push(task));
  }

  void work() {
    while (const std::optional<Task> task = tasks_.take()) {
      if (task->launches)
        group_.launch_rank(rank_, *task->step, task->step->message);
      else
        group_.wait_rank(rank_, *task->step);
      std::lock_guard lock(mutex_);
      if (++num_done_ == num_posted_) settled_.notify_all();
    }
  }

  RankGroup& group_;
  const size_t rank_;
  Queue<Task> tasks_;
  std::mutex mutex_;
  std::condition_variable settled_;
  int64_t num_posted_ = 0, num_done_ = 0;  // guarded by mutex_
  std::thread thread_;                     // last member: uses the others
};

RankGroup::RankGroup(std::vector<Rank> ranks, Health& health)
    : ranks_(std::move(ranks)), health_(health), onboards_(ranks_.size()) {
  NEREID_CHECK(std::ranges::count_if(ranks_, [](const Rank& r) { return r.runner->draws(); }) == 1);
  while (!ranks_[drawing_].runner->draws()) ++drawing_;
  steps_.resize(static_cast<size_t>(limits().depth));
  for (Step& step : steps_) {
    step.tickets.resize(ranks_.size());
    step.statuses.resize(ranks_.size());
    step.ticket = std::make_unique<GroupEvent>();
  }
  health_.set_hooks(
      [this] {
        uint64_t sum = 0;
        for (const Rank& rank : ranks_) sum += rank.device->health().progress();
        return sum;
      },
      [this] {
        const Status hung = unavailable("a rank of the group hangs");
        for (const Rank& rank : ranks_) {
          rank.runner->abort(hung);
          rank.device->health().hang(hung);
        }
      });
  threads_.resize(ranks_.size());
  for (size_t r = 0; r < ranks_.size(); ++r)
    if (ranks_[r].has_thread && r != drawing_) threads_[r] = std::make_unique<RankThread>(*this, r);
}

// Steps that were not waited for end, too: one whose masks never came would not.
RankGroup::~RankGroup() {
  if (std::ranges::any_of(steps_, &Step::in_use)) abort(cancelled("the group of ranks is closed"));
  threads_.clear();
  health_.set_hooks(nullptr, nullptr);
}

void RankGroup::operator delete(RankGroup* group, std::destroying_delete_t) {
  if (group->health_.is_hung()) return keep_for_ever(std::shared_ptr<void>(group, [](void*) {}));
  group->~RankGroup();
  ::operator delete(group);
}

StatusOr<Ticket> RankGroup::launch(std::span<const std::byte> message) {
  RETURN_IF_ERROR(health_.failure());
  const auto free = std::ranges::find(steps_, false, &Step::in_use);
  if (free == steps_.end())
    return invalid_argument("{} steps are in flight already; wait for one first", steps_.size());
  RETURN_IF_ERROR(check_embeddings(message));
  Step& step = *free;
  bool posted = false;
  const auto post = [&] {
    posted = true;
    if (std::ranges::any_of(threads_, [](const auto& thread) { return thread != nullptr; }))
      step.message.assign(message.begin(), message.end());
    for (const auto& thread : threads_)
      if (thread) thread->launch(step);
  };
  drawing().on_accepted(post);
  auto ticket = drawing().launch(message);
  drawing().on_accepted(nullptr);
  if (!ticket.ok() && posted) fail(drawing_, ticket.status());
  RETURN_IF_ERROR(ticket.status());
  step.tickets[drawing_] = *std::move(ticket);
  step.statuses[drawing_] = ok();
  step.in_use = true;
  if (!posted) post();
  for (size_t r = 0; r < ranks_.size(); ++r)
    if (r != drawing_ && !threads_[r]) launch_rank(r, step, message);
  return Ticket(std::move(step.ticket), static_cast<int32_t>(free - steps_.begin()));
}

// On the rank's thread if it has one.
void RankGroup::launch_rank(size_t rank, Step& step, std::span<const std::byte> message) {
  auto ticket = ranks_[rank].runner->launch(message);
  step.statuses[rank] = ticket.status();
  if (ticket.ok())
    step.tickets[rank] = *std::move(ticket);
  else
    fail(rank, ticket.status());
}

void RankGroup::draw(Ticket& ticket, std::span<const std::byte> masks) {
  drawing().draw(steps_[static_cast<size_t>(staging_of(ticket))].tickets[drawing_], masks);
}

StatusOr<StepResult> RankGroup::wait(Ticket& ticket) {
  if (!ticket) return invalid_argument("an empty ticket cannot be waited for");
  Step& step = steps_[static_cast<size_t>(staging_of(ticket))];
  for (size_t r = 0; r < ranks_.size(); ++r)
    if (!threads_[r] && step.statuses[r].ok()) ranks_[r].runner->will_wait(step.tickets[r]);
  for (const auto& thread : threads_)
    if (thread) thread->wait(step);
  const auto drawn = drawing().wait(step.tickets[drawing_]);
  step.statuses[drawing_] = drawn.status();
  if (!drawn.ok()) fail(drawing_, drawn.status());
  for (size_t r = 0; r < ranks_.size(); ++r)
    if (r != drawing_ && !threads_[r]) wait_rank(r, step);
  settle();
  step.ticket = std::move(event_of(ticket));
  step.in_use = false;
  ticket = Ticket();
  for (const Status& status : step.statuses) RETURN_IF_ERROR(status);
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (r == drawing_) continue;
    const Status status = ranks_[r].runner->follow(*drawn);
    if (!status.ok()) fail(r, status);
    RETURN_IF_ERROR(status);
  }
  return drawn;
}

// On the rank's thread if it has one.
void RankGroup::wait_rank(size_t rank, Step& step) {
  if (!step.statuses[rank].ok()) return;  // not launched
  step.statuses[rank] = ranks_[rank].runner->wait(step.tickets[rank]).status();
  if (!step.statuses[rank].ok()) fail(rank, step.statuses[rank]);
}

// No rank waits for another one then. Thread-safe.
void RankGroup::fail(size_t rank, const Status& error) {
  abort(error);
  if (ranks_[rank].device->health().is_hung())
    health_.hang(error);
  else
    health_.fail(error);
}

void RankGroup::abort(const Status& reason) {
  for (const Rank& rank : ranks_) rank.runner->abort(reason);
}

void RankGroup::settle() const {
  for (const auto& thread : threads_)
    if (thread) thread->settle();
}

// The first stage has the embeddings; where another one draws, it cannot check their number.
Status RankGroup::check_embeddings(std::span<const std::byte> message) const {
  if (drawing_ == 0 || drawing().embedding_width() > 0) return ok();
  ASSIGN_OR_RETURN(const StepMessageView step, decode(message));
  const int64_t count = std::ranges::count(step.tokens, kTokenExternal);
  const int64_t needed = count * embedding_width();
  if (static_cast<int64_t>(step.embeddings.size()) == needed) return ok();
  return invalid_argument("{} numbers of embeddings; {} tokens need {}", step.embeddings.size(),
                          count, needed);
}

std::optional<Status> RankGroup::onboarded(bool may_wait) {
  settle();
  // A rank may have missed the message of a failed launch: its copies never end.
  if (const Status failure = health_.failure(); !failure.ok()) return failure;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (onboards_[r].empty())
      if (auto ended = ranks_[r].runner->onboarded(may_wait)) onboards_[r].push_back(*ended);
    if (onboards_[r].empty()) return std::nullopt;
  }
  Status first;
  for (auto& ended : onboards_) {
    first.Update(ended.front());
    ended.pop_front();
  }
  return first;
}

const RunnerLimits& RankGroup::limits() const { return drawing().limits(); }
std::span<const CacheGroup> RankGroup::groups() const { return drawing().groups(); }
int32_t RankGroup::vocab_size() const { return drawing().vocab_size(); }
int32_t RankGroup::hidden_size() const { return drawing().hidden_size(); }
int32_t RankGroup::num_states() const { return drawing().num_states(); }
bool RankGroup::weighs_drafts() const { return drawing().weighs_drafts(); }
int32_t RankGroup::embedding_width() const { return ranks_[0].runner->embedding_width(); }
int32_t RankGroup::encoder_width() const { return drawing().encoder_width(); }
std::span<const EncodedInput> RankGroup::encoder_outputs() const {
  return drawing().encoder_outputs();
}

std::vector<MemoryItem> RankGroup::memory() const {
  std::vector<MemoryItem> table;
  for (const Rank& rank : ranks_)
    for (MemoryItem& item : rank.runner->memory()) table.push_back(std::move(item));
  return table;
}

std::vector<RankFigures> RankGroup::ranks() const {
  std::vector<RankFigures> all;
  for (const Rank& rank : ranks_)
    for (RankFigures& figures : rank.runner->ranks()) all.push_back(std::move(figures));
  return all;
}

std::vector<ExpertLoad> RankGroup::expert_load() const {
  std::vector<ExpertLoad> all;
  for (const Rank& rank : ranks_)
    for (ExpertLoad& load : rank.runner->expert_load()) all.push_back(std::move(load));
  return all;
}

void RankGroup::set_recording(bool on) {
  settle();
  for (const Rank& rank : ranks_) rank.runner->set_recording(on);
}

void RankGroup::set_profiling(bool on) {
  settle();
  for (const Rank& rank : ranks_) rank.runner->set_profiling(on);
}

std::vector<OpTime> RankGroup::profile() const {
  settle();
  std::vector<OpTime> all;
  for (const Rank& rank : ranks_)
    for (OpTime& time : rank.runner->profile()) {
      const auto found = std::ranges::find_if(all, [&](const OpTime& other) {
        return other.op == time.op && other.kernel == time.kernel && other.shape == time.shape;
      });
      if (found == all.end()) {
        all.push_back(std::move(time));
        continue;
      }
      found->num_calls += time.num_calls;
      found->seconds += time.seconds;
      found->bytes += time.bytes;
      found->flops += time.flops;
      found->busy.resize(std::max(found->busy.size(), time.busy.size()));
      for (size_t i = 0; i < time.busy.size(); ++i) found->busy[i] += time.busy[i];
    }
  std::ranges::stable_sort(all, std::greater(), &OpTime::seconds);
  return all;
}

void RankGroup::set_observer(ProductObserver observer) {
  settle();
  ProductObserver one_at_a_time;
  if (observer)
    one_at_a_time = [observer = std::move(observer), mutex = std::make_shared<std::mutex>()](
                        const std::string& weight, kernels::Linear& call) {
      std::lock_guard lock(*mutex);
      return observer(weight, call);
    };
  for (const Rank& rank : ranks_) rank.runner->set_observer(one_at_a_time);
}

}  // namespace nereid::exec
