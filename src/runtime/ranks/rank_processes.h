// Worker processes of a model's ranks, and what the leader, the process that serves, has of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "comm/shared_group.h"
#include "exec/exchange.h"
#include "exec/runner.h"
#include "runtime/ranks/launched_group.h"
#include "tensor/device.h"
#include "tensor/health.h"

namespace nereid::runtime {

struct RankProcessOptions {
  // Runs rank_worker_main() with kRankWorker as its first argument; empty: nereid_program().
  std::filesystem::path program;
  int32_t tp = 1, pp = 1;  // see io::Mapping
  int32_t first = 1;       // ranks [first, tp * pp) are processes, those before threads
  // Launched processes of the ranks from `first` on, by their ranks in launched_job(), above 0;
  // each once, unless they are of several hosts. Empty: the processes are started.
  std::vector<int32_t> participants;
  std::vector<std::string> devices;  // [tp * pp], names of kernels::open_device()
  std::string isa;
  // [tp * pp]; empty or 0: the devices' default, of a launched process launched_threads().
  std::vector<int> num_threads;
  Duration device_timeout{};  // see Health
  // Health of devices of ranks in this process; while these make progress, no process's device
  // counts as hung that waits for them. They must outlive the processes.
  std::vector<const Health*> local;
  // Longest wait of a rank for another one in an exchange. Steps may take long; a rank that hangs
  // is found by its silence, or by its device's health.
  Duration exchange_limit = comm::kMaxTimeLimit;
  // A process without a sign of life for so long is killed; this one is, by the processes.
  Duration silence_limit = std::chrono::seconds(3);
  Duration meet_limit = kMeetLimit;  // until launched processes answer
};

// The program nereid: this one, or beside it or beside the library that has this function. NotFound
// with the folders.
StatusOr<std::filesystem::path> nereid_program();

// Processes of ranks. One that ends or hangs ends the exchange of all ranks, and fails the health
// of the group and of its device with Unavailable: rank, process, reason. Started processes end
// with this object, launched ones give up their ranks; all end with this program, even if killed.
class RankProcesses {
 public:
  // Starts the processes, or gives launched ones their ranks; returns when their devices are open.
  // `health`: of the group; must outlive the object and its runners; null: none. Errors: those of
  // the devices, annotated with the rank; InvalidArgument: numbers that do not fit; Unavailable: a
  // process that cannot be started; DeadlineExceeded: a launched one that does not answer.
  static StatusOr<std::shared_ptr<RankProcesses>> start(const RankProcessOptions& options,
                                                        Health* health);
  virtual ~RankProcesses() = default;

  // A process's device as known here: info(), free_bytes() when it was opened, health(). It gives
  // no memory and no streams. Precondition: `rank` is a process.
  virtual Device& device(int32_t rank) = 0;

  // Communicators of a rank before options.first; each rank's once.
  virtual StatusOr<exec::RankComms> comms(int32_t rank) = 0;

  // Makes the processes load their engines at the same time: begin_load() returns at once, so that
  // the caller can load those of its own ranks, finish_load() when all are loaded. engines [tp *
  // pp]: files; those of other ranks are ignored. Runners come in the order of ranks from
  // options.first on, and keep this object. Errors: those of exec::make_runner(), annotated.
  virtual Status begin_load(std::span<const std::filesystem::path> engines,
                            const exec::RunnerLimits& limits,
                            const kernels::KernelChoices& forced = {}) = 0;
  virtual StatusOr<std::vector<std::unique_ptr<exec::Runner>>> finish_load() = 0;

  // Process id of a rank, for tests and reports.
  virtual int64_t process(int32_t rank) const = 0;
};

}  // namespace nereid::runtime
