// Test only: a runner whose steps a process of its own executes, from their messages alone.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/status.h"
#include "exec/runner.h"
#include "nereid/config.h"
#include "runtime/ranks/rank_processes.h"

namespace nereid::runtime {

// `local`: a runner of the same engine. Four steps are in flight with overlap. Needs the program
// rank_worker in the same directory.
inline StatusOr<std::unique_ptr<exec::Runner>> make_process_runner(
    const exec::Runner& local, const std::filesystem::path& engine, const ExecutorConfig& config) {
  ASSIGN_OR_RETURN(
      const auto processes,
      RankProcesses::start(
          {.program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "rank_worker",
           .first = 0,
           .devices = {config.device},
           .isa = config.isa,
           .num_threads = {config.num_threads},
           .silence_limit = std::chrono::seconds(60)},
          nullptr));
  exec::RunnerLimits limits = local.limits();
  if (limits.depth > 1) limits.depth = 4;
  RETURN_IF_ERROR(processes->begin_load({&engine, 1}, limits));
  ASSIGN_OR_RETURN(auto runners, processes->finish_load());
  return std::move(runners[0]);
}

}  // namespace nereid::runtime
