// The ranks of a model behind one Runner: each step goes to all of them, one rank draws.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "exec/runner.h"
#include "tensor/device.h"
#include "tensor/health.h"

namespace nereid::exec {

// Each rank has a runner on a device of its own, which gets the messages of all steps. Launches:
// first the drawing rank's, on the caller's thread; it checks the message, so that a refused one
// changes nothing on any rank. Ranks whose device submits work on the caller's thread (GPUs) have a
// thread each, but for the drawing one.
//
// An error of one rank ends the exchange of all ranks, all steps in flight, and the group's health:
// there are no steps after it.
class RankGroup : public Runner {
 public:
  struct Rank {
    std::unique_ptr<Runner> runner;
    Device* device = nullptr;  // outlives the group
    bool has_thread = false;   // its launches take time, see above
  };

  // `ranks`: in the order of io::Mapping::rank, all with the same limits; exactly one draws.
  // `health`: of the group, takes the failure of any rank; its hooks are set here. It must outlive
  // the group, and outlives its use.
  RankGroup(std::vector<Rank> ranks, Health& health);
  ~RankGroup() override;
  // A group of a hung device is leaked, as its runners are.
  static void operator delete(RankGroup* group, std::destroying_delete_t);

  StatusOr<Ticket> launch(std::span<const std::byte> message) override;
  void draw(Ticket& ticket, std::span<const std::byte> masks) override;
  StatusOr<StepResult> wait(Ticket& ticket) override;
  // Status of copies that have ended on all ranks: an error of any rank. Once the group has failed,
  // its failure, also of copies that a rank never started.
  std::optional<Status> onboarded(bool may_wait) override;

  const RunnerLimits& limits() const override;
  std::span<const CacheGroup> groups() const override;
  int32_t vocab_size() const override;
  int32_t hidden_size() const override;
  int32_t num_states() const override;
  bool weighs_drafts() const override;
  int32_t embedding_width() const override;
  int32_t encoder_width() const override;
  std::span<const EncodedInput> encoder_outputs() const override;
  std::vector<MemoryItem> memory() const override;  // of all ranks
  std::vector<RankFigures> ranks() const override;
  std::vector<ExpertLoad> expert_load() const override;  // of all stages
  void set_recording(bool on) override;
  void set_profiling(bool on) override;
  // Calls of all ranks, those of one kind added up.
  std::vector<OpTime> profile() const override;
  // Sees the products of all ranks, one call at a time, in any order of ranks.
  void set_observer(ProductObserver observer) override;
  void abort(const Status& reason) override;

 private:
  class RankThread;
  // A step in flight.
  struct Step {
    bool in_use = false;
    std::vector<std::byte> message;  // for the threads
    std::vector<Ticket> tickets;     // [ranks]; empty: launch failed
    std::vector<Status> statuses;    // [ranks] of launch, then of wait
    std::unique_ptr<Event> ticket;   // of the group, between uses
  };

  Runner& drawing() const { return *ranks_[drawing_].runner; }
  void launch_rank(size_t rank, Step& step, std::span<const std::byte> message);
  void wait_rank(size_t rank, Step& step);
  Status check_embeddings(std::span<const std::byte> message) const;
  void settle() const;
  void fail(size_t rank, const Status& error);

  std::vector<Rank> ranks_;
  Health& health_;
  size_t drawing_ = 0;
  std::vector<Step> steps_;                                   // [depth]
  std::vector<std::deque<Status>> onboards_;                  // [ranks] ended, not yet reported
  mutable std::vector<std::unique_ptr<RankThread>> threads_;  // [ranks]; null: none. Joined first
};

}  // namespace nereid::exec
