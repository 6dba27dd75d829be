// A worker's loop: messages in order, results as soon as the leader waits for them.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "exec/step_message.h"
#include "runtime/ranks/channel.h"
#include "runtime/ranks/rank_wire.h"
#include "runtime/ranks/rank_worker.h"

namespace nereid::runtime {
namespace {

// A step in flight.
struct Step {
  StatusOr<exec::Ticket> ticket;
  uint64_t history = 0;
  bool waits_for_masks = false;
  bool is_awaited = false;  // by the leader, see RemoteRunner
};

class RankServer {
 public:
  RankServer(Channel& channel, exec::Runner& runner) : channel_(channel), runner_(runner) {}

  Status serve() {
    Status status = ok();
    while (status.ok()) {
      if (!steps_.empty() && steps_.front().is_awaited && !steps_.front().waits_for_masks) {
        status = finish();
        continue;
      }
      const auto message = channel_.receive();
      status = message.ok() ? take(*message) : message.status();
    }
    // The leader has closed the channel, or has ended.
    if (status.code() == absl::StatusCode::kUnavailable) status = ok();
    // Other ranks' steps must not wait for this one.
    if (!steps_.empty()) runner_.abort(unavailable("a rank has left"));
    for (Step& step : steps_)
      if (step.ticket.ok() && !step.waits_for_masks) runner_.wait(*step.ticket).IgnoreError();
    return status;
  }

 private:
  Status take(const Message& message) {
    switch (message.kind) {
      case Kind::kStep:
        launch(message.bytes);
        return ok();
      case Kind::kMasks:
        return draw(message.bytes);
      case Kind::kWait:
        if (steps_.empty()) return data_loss("no step is in flight that could be waited for");
        steps_.front().is_awaited = true;
        return ok();
      case Kind::kFollow:
        return follow(message.bytes);
      case Kind::kOnboards:
        writer_.clear();
        put_statuses(writer_, onboards(/*may_wait=*/true));
        return channel_.send(Kind::kOnboarded, writer_.bytes());
      case Kind::kSetRecording:
        runner_.set_recording(!message.bytes.empty());
        return ok();
      case Kind::kSetProfiling:
        runner_.set_profiling(!message.bytes.empty());
        return ok();
      case Kind::kProfile:
        writer_.clear();
        put_times(writer_, runner_.profile());
        return channel_.send(Kind::kProfiled, writer_.bytes());
      default:
        return data_loss("a message of kind {} while steps run",
                         static_cast<uint32_t>(message.kind));
    }
  }

  void launch(std::span<const std::byte> message) {
    history_ = next_history(history_, message);
    Step& step = steps_.emplace_back();
    step.history = history_;
    if (!broken_.ok())
      step.ticket = broken_;
    else
      step.ticket = runner_.launch(message);
    if (!step.ticket.ok()) {
      runner_.abort(step.ticket.status());
    } else if (runner_.draws()) {
      const auto view = exec::decode(message);
      step.waits_for_masks =
          view.ok() && std::ranges::any_of(
                           view->rows, [](const exec::StepRow& row) { return row.has_mask != 0; });
    }
    if (steps_.size() == static_cast<size_t>(runner_.limits().depth))
      steps_.front().is_awaited = true;
  }

  // Masks of a step that was not launched are dropped.
  Status draw(std::span<const std::byte> masks) {
    if (steps_.empty()) return data_loss("masks of no step");
    Step& step = steps_.back();
    if (step.ticket.ok() && step.waits_for_masks) runner_.draw(*step.ticket, masks);
    step.waits_for_masks = false;
    return ok();
  }

  Status follow(std::span<const std::byte> message) {
    RETURN_IF_ERROR(get_paths(message, paths_));
    broken_ = runner_.follow(paths_.rows);
    if (!broken_.ok()) runner_.abort(broken_);
    return ok();
  }

  // Waits for the oldest step in flight.
  Status finish() {
    Step step = std::move(steps_.front());
    steps_.erase(steps_.begin());
    const StatusOr<exec::StepResult> result =
        step.ticket.ok() ? runner_.wait(*step.ticket)
                         : StatusOr<exec::StepResult>(step.ticket.status());
    writer_.clear();
    put_report(writer_, step.history, runner_.ranks(), onboards(/*may_wait=*/false), result);
    return channel_.send(Kind::kResult, writer_.bytes());
  }

  // Statuses of ended onboards, in order.
  std::vector<Status> onboards(bool may_wait) {
    std::vector<Status> all;
    while (auto ended = runner_.onboarded(may_wait && all.empty()))
      all.push_back(*std::move(ended));
    return all;
  }

  Channel& channel_;
  exec::Runner& runner_;
  std::vector<Step> steps_;  // oldest first
  Status broken_;            // of follow(): later steps would read wrong keys and values
  uint64_t history_ = 0;
  Writer writer_;
  StepReport paths_;
};

}  // namespace

Status serve_rank(Channel& channel, exec::Runner& runner) {
  return RankServer(channel, runner).serve();
}

}  // namespace nereid::runtime
