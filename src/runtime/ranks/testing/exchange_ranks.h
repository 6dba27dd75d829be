// Test only: the ranks of exchange_runner.h as a group; rank 0 is a thread, the others processes.
#pragma once

#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "exec/rank_group.h"
#include "runtime/ranks/rank_processes.h"
#include "runtime/ranks/testing/exchange_runner.h"

namespace nereid::runtime {

inline std::filesystem::path program_beside_this(const char* name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

inline RankProcessOptions exchange_options(int32_t num_ranks) {
  return {.program = program_beside_this("fake_rank_worker"),
          .tp = num_ranks,
          .devices = std::vector<std::string>(static_cast<size_t>(num_ranks), "cpu"),
          .silence_limit = std::chrono::seconds(1)};
}

struct ExchangeRanks {
  Health health{[] { return std::string("the group of ranks"); }};
  std::unique_ptr<Device> device = make_cpu_device({.num_threads = 1}).value();
  std::shared_ptr<RankProcesses> processes;
  std::unique_ptr<exec::RankGroup> group;

  Status open(const RankProcessOptions& options) {
    ASSIGN_OR_RETURN(processes, RankProcesses::start(options, &health));
    const std::vector<std::filesystem::path> engines(static_cast<size_t>(options.tp), "any");
    RETURN_IF_ERROR(processes->begin_load(engines, {}));
    ASSIGN_OR_RETURN(exec::RankComms comms, processes->comms(0));
    std::vector<exec::RankGroup::Rank> ranks(1);
    ranks[0] = {.runner = std::make_unique<ExchangeRunner>(*device, std::move(comms)),
                .device = device.get()};
    ASSIGN_OR_RETURN(auto runners, processes->finish_load());
    for (auto& runner : runners) {
      Device& remote = processes->device(static_cast<int32_t>(ranks.size()));
      ranks.push_back({.runner = std::move(runner), .device = &remote});
    }
    group = std::make_unique<exec::RankGroup>(std::move(ranks), health);
    return ok();
  }

  // One step after the other, `depth` of them in flight, until one fails or `num_steps` are done.
  Status run(int32_t num_steps) {
    std::vector<exec::Ticket> flying;
    Status status = ok();
    for (int32_t step = 1; status.ok() && (step <= num_steps || !flying.empty());) {
      if (step <= num_steps && flying.size() < kExchangeDepth) {
        auto ticket = group->launch(exchange_step(step++));
        if (ticket.ok())
          flying.push_back(*std::move(ticket));
        else
          status = ticket.status();
        continue;
      }
      status = group->wait(flying.front()).status();
      flying.erase(flying.begin());
    }
    for (exec::Ticket& ticket : flying) group->wait(ticket).IgnoreError();
    return status;
  }
};

// Whether this process has no children, not even ended ones.
inline bool has_no_children() { return ::waitpid(-1, nullptr, WNOHANG) == -1; }

}  // namespace nereid::runtime
