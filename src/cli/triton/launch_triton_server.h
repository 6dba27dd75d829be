// launch_triton_server: the command line and environment for starting a model repository's server.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/flags/arg_table.h"

namespace nereid::cli {

struct LaunchPlan {
  // Programs with arguments. One: the server, or mpirun, which starts all ranks. Several: the
  // servers of all ranks, which find each other by `environment` and rank (launched_job.h).
  std::vector<std::vector<std::string>> commands;
  std::map<std::string, std::string> environment;  // set for all of them
  // The one command takes the place of this program: srun ends what a task has left.
  bool stays = false;
};

// This program is a task of srun, or a process of mpirun.
struct LaunchTask {
  std::string launcher;
  int rank = 0, size = 1;
};

// Facts of the machine for plan_launch().
struct LaunchMachine {
  std::string bin;  // the folder of this program: the default server is in it
  bool has_mpirun = false;
  size_t num_gpus = 0;
  std::optional<LaunchTask> task;
};

extern const ArgTable kLaunchTable;

// The command lines of the TensorRT-LLM backend's launcher: by mpirun where there is one. Without
// it the servers are started by themselves, and a task becomes the server of its rank.
// InvalidArgument names the option.
StatusOr<LaunchPlan> plan_launch(const Args& args, const LaunchMachine& machine);

}  // namespace nereid::cli
