// A launched process that runs a rank for this one, beside ranks of other models.
#pragma once

#include <csignal>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "comm/shared_memory.h"
#include "runtime/ranks/launched_job.h"
#include "runtime/ranks/rank_worker.h"
#include "runtime/ranks/rendezvous.h"
#include "runtime/ranks/worker_process.h"

namespace nereid::runtime {

class LaunchedProcess final : public WorkerProcess {
 public:
  // Gives a rank to the process `participant` of the job, which is waited for until `deadline`.
  // `own_beats`: this process's end of signs of life, whose other end the rank closes last. Errors:
  // those of connect_to().
  static StatusOr<std::unique_ptr<LaunchedProcess>> start(const LaunchedJob& job,
                                                          int32_t participant, Time deadline,
                                                          const WorkerStart& start,
                                                          const WorkerDescriptors& descriptors,
                                                          const comm::Descriptor& own_beats);

  pid_t id() const override { return process_.id(); }
  std::optional<std::string> ended(Duration limit) override;
  bool ended_well() const override { return true; }  // its exit code goes to its parent alone
  void kill() const override { process_.signal(SIGKILL); }

 private:
  LaunchedProcess(ProcessHandle process, comm::Descriptor beats)
      : process_(std::move(process)), beats_(std::move(beats)) {}

  ProcessHandle process_;
  comm::Descriptor beats_;  // a copy
  std::optional<std::string> how_;
};

}  // namespace nereid::runtime
