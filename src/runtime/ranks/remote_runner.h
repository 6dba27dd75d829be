// A runner whose steps a worker process executes.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "exec/runner.h"
#include "runtime/ranks/channel.h"
#include "runtime/ranks/rank_wire.h"

namespace nereid::runtime {

// The leader's end of a worker process.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  virtual Channel& channel() = 0;
  // The failure of the group's processes; OK: none.
  virtual Status failure() const = 0;
  // The failure behind an error of the channel.
  virtual Status explain(const Status& error) = 0;
  // The worker does not do what it should; all ranks end.
  virtual void fail(const Status& error) = 0;
  // Ends the exchange of all ranks. Thread-safe.
  virtual void abort(const Status& reason) = 0;
};

// Differs from a local runner: errors of a step's message are returned by wait(); an observer sees
// nothing. The worker sends the result of a step unasked after the launch that brings `depth` steps
// into flight, else after will_wait() or wait().
class RemoteRunner final : public exec::Runner {
 public:
  RemoteRunner(std::shared_ptr<WorkerLink> worker, RankModel model);

  StatusOr<exec::Ticket> launch(std::span<const std::byte> message) override;
  void draw(exec::Ticket& ticket, std::span<const std::byte> masks) override;
  // Tickets are waited for in order.
  void will_wait(exec::Ticket& ticket) override;
  StatusOr<exec::StepResult> wait(exec::Ticket& ticket) override;
  std::optional<Status> onboarded(bool may_wait) override;

  const exec::RunnerLimits& limits() const override { return model_.limits; }
  std::span<const exec::CacheGroup> groups() const override { return model_.groups; }
  int32_t vocab_size() const override { return model_.vocab_size; }
  int32_t hidden_size() const override { return model_.hidden_size; }
  int32_t num_states() const override { return model_.num_states; }
  bool weighs_drafts() const override { return model_.weighs_drafts; }
  int32_t embedding_width() const override { return model_.embedding_width; }
  std::vector<exec::RankFigures> ranks() const override;  // as of the last step; any thread
  std::vector<exec::MemoryItem> memory() const override { return model_.memory; }
  void set_recording(bool on) override;
  void set_profiling(bool on) override;
  std::vector<exec::OpTime> profile() const override;

  bool draws() const override { return model_.draws; }
  Status follow(exec::StepResult drawn) override;
  void abort(const Status& reason) override { worker_->abort(reason); }

 private:
  struct Step {
    uint64_t history = 0;
    bool is_awaited = false;  // the worker sends its result unasked
  };

  Status send(Kind kind, std::span<const std::byte> bytes = {}) const;
  StatusOr<Message> receive(Kind kind) const;
  Status receive_result();

  const std::shared_ptr<WorkerLink> worker_;
  const RankModel model_;
  std::vector<Step> steps_;  // in flight, oldest first
  std::vector<std::unique_ptr<Event>> free_events_;
  uint64_t history_ = 0;
  Writer writer_;
  StepReport report_;
  std::deque<Status> onboarded_;  // not yet taken by the caller
  mutable std::mutex mutex_;
  std::vector<exec::RankFigures> figures_;  // guarded by mutex_
};

}  // namespace nereid::runtime
