// The process of a rank that another process leads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "exec/exchange.h"
#include "exec/runner.h"
#include "runtime/ranks/channel.h"
#include "runtime/ranks/rank_wire.h"
#include "tensor/device.h"

namespace nereid::runtime {

// Name of the subcommand that runs rank_worker_main().
inline constexpr const char* kRankWorker = "rank-worker";

// How a worker opens what it runs; tests have runners of their own.
class RankOpener {
 public:
  virtual ~RankOpener() = default;
  // `device`, `isa`: as kernels::open_device(); 0 threads: its default.
  virtual StatusOr<Device*> open_device(const std::string& device, const std::string& isa,
                                        int num_threads) = 0;
  virtual StatusOr<std::unique_ptr<exec::Runner>> load(const RankLoad& load,
                                                       exec::RankComms comms) = 0;
};
std::unique_ptr<RankOpener> engine_opener();  // of engine files

// A worker's main function; argv[1] and on are those of worker_arguments(). Ignores SIGINT, SIGTERM
// and SIGHUP, which a terminal or launcher sends to all processes: the end of the channel ends it.
// It ends with the leader, whatever becomes of that.
int rank_worker_main(int argc, char** argv,
                     const std::function<std::unique_ptr<RankOpener>()>& opener = engine_opener);

// Arguments of a worker.
struct WorkerStart {
  int32_t rank = 0;
  int32_t tensor_rank = 0, stage = 0;  // in the segments
  std::string device, isa;
  int num_threads = 0;
  int64_t device_timeout_ms = 0;
  int64_t beat_ms = 0;  // between two signs of life
  int64_t leader = 0;   // process
  bool has_tensor = false, has_pipeline = false;
};
// Descriptors of a worker process.
enum WorkerDescriptor : int { kSteps = 3, kBeats = 4, kTensor = 5, kPipeline = 6, kEnd = 7 };

std::vector<std::string> worker_arguments(const WorkerStart& start);
StatusOr<WorkerStart> parse_worker_arguments(int argc, char** argv);

// Executes the leader's messages until it closes the channel.
Status serve_rank(Channel& channel, exec::Runner& runner);

}  // namespace nereid::runtime
