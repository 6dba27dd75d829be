// Test only: ranks that a test controls, and the small model on two tensor ranks.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/thread_group.h"
#include "exec/rank_group.h"
#include "exec/test_engine.h"
#include "exec/test_harness.h"
#include "kernels/open.h"
#include "tensor/cpu_device.h"

namespace nereid::exec {

// Calls of a fake rank, and its results. Guarded by `mutex` where threads matter.
struct RankScript {
  std::mutex mutex;
  std::condition_variable changed;
  int num_launches = 0, num_waits = 0, num_follows = 0;
  std::thread::id launcher;
  std::vector<std::string> aborts;
  Status launch_status, wait_status;
  std::deque<Status> onboards;  // ended
  bool held = false;            // waits block until it is false or the rank is aborted
};

class ScriptedRank : public Runner {
 public:
  ScriptedRank(RankScript& script, int32_t rank, bool draws)
      : script_(script), rank_(rank), draws_(draws) {
    row_.drawn = {&token_, 1};
  }

  StatusOr<Ticket> launch(std::span<const std::byte>) override {
    std::lock_guard lock(script_.mutex);
    RETURN_IF_ERROR(script_.launch_status);
    ++script_.num_launches;
    script_.launcher = std::this_thread::get_id();
    return Ticket(std::make_unique<Done>(), 0);
  }
  void draw(Ticket&, std::span<const std::byte>) override {}
  StatusOr<StepResult> wait(Ticket& ticket) override {
    NEREID_CHECK(static_cast<bool>(ticket));
    ticket = Ticket();
    std::unique_lock lock(script_.mutex);
    script_.changed.wait(lock, [&] { return !script_.held || !script_.aborts.empty(); });
    ++script_.num_waits;
    RETURN_IF_ERROR(script_.wait_status);
    if (!script_.aborts.empty()) return aborted_by(script_.aborts[0]);
    return draws_ ? StepResult(&row_, 1) : StepResult();
  }
  std::optional<Status> onboarded(bool) override {
    std::lock_guard lock(script_.mutex);
    if (script_.onboards.empty()) return std::nullopt;
    const Status first = script_.onboards.front();
    script_.onboards.pop_front();
    return first;
  }
  Status follow(StepResult drawn) override {
    NEREID_CHECK(drawn.size() == 1 && drawn[0].drawn[0].token == token_.token);
    ++script_.num_follows;
    return ok();
  }
  bool draws() const override { return draws_; }
  void abort(const Status& reason) override {
    std::lock_guard lock(script_.mutex);
    script_.aborts.emplace_back(reason.message());
    script_.changed.notify_all();
  }

  const RunnerLimits& limits() const override { return limits_; }
  std::span<const CacheGroup> groups() const override { return groups_; }
  int32_t vocab_size() const override { return 32; }
  int32_t hidden_size() const override { return 0; }
  int32_t embedding_width() const override { return rank_ == 0 ? 4 : 0; }
  std::vector<MemoryItem> memory() const override { return {{"weights", 7, rank_}}; }
  std::vector<RankFigures> ranks() const override { return {{rank_, "cpu", 3, 0.5}}; }
  std::vector<OpTime> profile() const override {
    return {{"linear", "ref", "", 2, 1.0 + rank_, 10},
            {"rank", "", std::to_string(rank_), 1, 9, 0}};
  }

 private:
  struct Done : Event {
    Status wait() override { return ok(); }
    bool done() override { return true; }
  };
  static Status aborted_by(const std::string& reason) { return cancelled("{}", reason); }

  RankScript& script_;
  const int32_t rank_;
  const bool draws_;
  const RunnerLimits limits_ = {4, 32, 64, 16, 4};
  const std::vector<CacheGroup> groups_ = {{}};
  kernels::SampleResult token_ = {.token = 5};
  RowResult row_;
};

// The small model, whose projection is summed over two ranks that have it whole: twice its result.
inline io::Plan plan_of_rank(int32_t tp, int32_t rank) {
  io::Plan plan = small_plan();
  constexpr int kAdd = 5;  // x = x + y
  const io::ValueId y = std::get<kernels::ids::Add>(plan.calls[kAdd].op).y;
  if (tp == 1)
    plan.calls.insert(plan.calls.begin() + kAdd,
                      {kernels::ids::Add{.x = y, .y = y, .out = y}, "ref"});
  else
    plan.calls.insert(plan.calls.begin() + kAdd, {kernels::ids::AllReduce{.x = y, .out = y}, ""});
  plan.mapping.tp = tp, plan.mapping.rank = rank;
  NEREID_CHECK(io::check_plan(plan).ok());
  return plan;
}

// Runners of both ranks on CPU devices of their own, and their group.
class TwoRanks {
 public:
  explicit TwoRanks(const RunnerLimits& limits, bool has_threads = false) {
    auto comms = comm::make_thread_group(2, std::chrono::seconds(60)).value();
    std::vector<RankGroup::Rank> ranks;
    for (int32_t r = 0; r < 2; ++r) {
      devices_[r] = kernels::open_device("cpu", {.num_threads = 1}).value();
      const auto path = write_engine(plan_of_rank(2, r), fmt::format("of_rank{}", r));
      auto file = io::EngineFile::open(path).value();
      runners_[r] = nullptr;
      auto runner = make_runner(std::move(file), *devices_[r].device, devices_[r].registry, limits,
                                {}, {.tensor = std::move(comms[static_cast<size_t>(r)])});
      NEREID_CHECK(runner.ok());
      runners_[r] = runner->get();
      ranks.push_back({*std::move(runner), devices_[r].device.get(), has_threads});
    }
    group_ = std::make_unique<RankGroup>(std::move(ranks), health_);
  }

  RankGroup& group() { return *group_; }
  Runner& rank(int r) { return *runners_[r]; }
  const Health& health() const { return health_; }

 private:
  Health health_{[] { return "the group"; }};
  kernels::OpenedDevice devices_[2];
  Runner* runners_[2] = {};
  std::unique_ptr<RankGroup> group_;
};

}  // namespace nereid::exec
