// Step messages out, results in.
#include "runtime/ranks/remote_runner.h"

#include <algorithm>

#include "base/log.h"

namespace nereid::runtime {
namespace {

// Tickets of remote steps have no event of their own.
class SentEvent final : public Event {
 public:
  Status wait() override { return ok(); }
  bool done() override { return false; }
};

}  // namespace

RemoteRunner::RemoteRunner(std::shared_ptr<WorkerLink> worker, RankModel model)
    : worker_(std::move(worker)), model_(std::move(model)) {
  const auto depth = static_cast<size_t>(model_.limits.depth);
  steps_.reserve(depth);
  for (size_t i = 0; i < depth; ++i) free_events_.push_back(std::make_unique<SentEvent>());
}

Status RemoteRunner::send(Kind kind, std::span<const std::byte> bytes) const {
  const Status status = worker_->channel().send(kind, bytes);
  return status.ok() ? status : worker_->explain(status);
}

StatusOr<Message> RemoteRunner::receive(Kind kind) const {
  const auto message = worker_->channel().receive();
  if (!message.ok()) return worker_->explain(message.status());
  if (message->kind == kind) return message;
  return data_loss("a message of kind {} instead of {}", static_cast<uint32_t>(message->kind),
                   static_cast<uint32_t>(kind));
}

StatusOr<exec::Ticket> RemoteRunner::launch(std::span<const std::byte> message) {
  RETURN_IF_ERROR(worker_->failure());
  if (free_events_.empty())
    return invalid_argument("{} steps are in flight already; wait for one first", steps_.size());
  history_ = next_history(history_, message);
  RETURN_IF_ERROR(send(Kind::kStep, message));
  steps_.push_back({.history = history_});
  if (steps_.size() == static_cast<size_t>(model_.limits.depth)) steps_.front().is_awaited = true;
  exec::Ticket ticket(std::move(free_events_.back()), 0);
  free_events_.pop_back();
  return ticket;
}

// An error of the channel is found again by wait().
void RemoteRunner::draw(exec::Ticket&, std::span<const std::byte> masks) {
  send(Kind::kMasks, masks).IgnoreError();
}

void RemoteRunner::will_wait(exec::Ticket&) {
  if (steps_.empty() || std::exchange(steps_.front().is_awaited, true)) return;
  send(Kind::kWait).IgnoreError();
}

StatusOr<exec::StepResult> RemoteRunner::wait(exec::Ticket& ticket) {
  if (!ticket || steps_.empty()) return invalid_argument("an empty ticket cannot be waited for");
  will_wait(ticket);
  const Status status = receive_result();
  steps_.erase(steps_.begin());
  free_events_.push_back(std::move(event_of(ticket)));
  ticket = exec::Ticket();
  if (!status.ok()) return status;
  RETURN_IF_ERROR(report_.status);
  return exec::StepResult(report_.rows);
}

Status RemoteRunner::receive_result() {
  ASSIGN_OR_RETURN(const Message message, receive(Kind::kResult));
  RETURN_IF_ERROR(get_report(message.bytes, report_));
  for (Status& status : report_.onboarded) onboarded_.push_back(std::move(status));
  {
    std::lock_guard lock(mutex_);
    figures_ = report_.figures;
  }
  if (report_.history == steps_.front().history) return ok();
  worker_->fail(
      internal_error("is out of step: the hash of its step messages is {:016x}, not {:016x}",
                     report_.history, steps_.front().history));
  return worker_->failure();
}

std::optional<Status> RemoteRunner::onboarded(bool may_wait) {
  if (onboarded_.empty() && may_wait) {
    if (Status status = send(Kind::kOnboards); !status.ok()) return status;
    const auto message = receive(Kind::kOnboarded);
    if (!message.ok()) return message.status();
    std::vector<Status> ended;
    if (Status status = get_statuses(message->bytes, ended); !status.ok()) return status;
    onboarded_.insert(onboarded_.end(), ended.begin(), ended.end());
  }
  if (onboarded_.empty()) return std::nullopt;
  const Status first = onboarded_.front();
  onboarded_.pop_front();
  return first;
}

std::vector<exec::RankFigures> RemoteRunner::ranks() const {
  std::lock_guard lock(mutex_);
  return figures_;
}

void RemoteRunner::set_recording(bool on) {
  const std::byte one{1};
  send(Kind::kSetRecording, {&one, on ? size_t{1} : size_t{0}}).IgnoreError();
}

void RemoteRunner::set_profiling(bool on) {
  const std::byte one{1};
  send(Kind::kSetProfiling, {&one, on ? size_t{1} : size_t{0}}).IgnoreError();
}

std::vector<exec::OpTime> RemoteRunner::profile() const {
  std::vector<exec::OpTime> times;
  if (!send(Kind::kProfile).ok()) return times;
  const auto message = receive(Kind::kProfiled);
  if (!message.ok() || !get_times(message->bytes, times).ok()) times.clear();
  return times;
}

Status RemoteRunner::follow(exec::StepResult drawn) {
  if (std::ranges::all_of(drawn, [](const exec::RowResult& row) { return row.path.empty(); }))
    return ok();
  writer_.clear();
  put_paths(writer_, drawn);
  return send(Kind::kFollow, writer_.bytes());
}

}  // namespace nereid::runtime
