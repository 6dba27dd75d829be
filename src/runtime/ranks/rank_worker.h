// A rank in a process that another process leads.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/shared_memory.h"
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
using MakeOpener = std::function<std::unique_ptr<RankOpener>()>;
std::unique_ptr<RankOpener> engine_opener();  // of engine files
// `engine_dir`: the folder of this host that has files with the names of the leader's; empty: they
// are at the leader's paths.
std::unique_ptr<RankOpener> engine_opener_in(const std::filesystem::path& engine_dir);

// The checksum in the prefix of an engine file, which covers the header, and so the plan and each
// weight's checksum: equal in files of equal contents. Errors: of reading; DataLoss: too short.
StatusOr<uint64_t> engine_checksum(const std::filesystem::path& path);

struct WorkerStart {
  int32_t rank = 0;
  int32_t tensor_rank = 0, stage = 0;  // in the segments
  std::string device, isa;
  int num_threads = 0;
  int64_t device_timeout_ms = 0;
  int64_t beat_ms = 0;     // between two signs of life
  int64_t silence_ms = 0;  // without a sign of life of the leader, after which it hangs
  int64_t leader = 0;      // process
  bool has_tensor = false, has_pipeline = false;
};
std::vector<std::string> worker_arguments(const WorkerStart& start);
StatusOr<WorkerStart> parse_worker_arguments(std::span<const std::string> arguments);

struct WorkerDescriptors {
  comm::Descriptor steps;             // Channel
  comm::Descriptor beats;             // signs of life
  comm::Descriptor tensor, pipeline;  // segments of the exchange, see WorkerStart
};

// Reactions, on the thread of signs of life, to a leader that has closed its end, or has given no
// sign of life for `silence_ms`.
struct LeaderLoss {
  std::function<void()> closed, silent;  // null: nothing
};

// Runs a rank until the leader closes the channel. Errors are the worker's own; those of the device
// and of the engine are sent to the leader.
Status run_rank(const WorkerStart& start, WorkerDescriptors descriptors, const MakeOpener& opener,
                const LeaderLoss& loss);
// run_rank() of a rank whose communicators the caller has made.
Status run_rank(const WorkerStart& start, comm::Descriptor steps, comm::Descriptor beats,
                exec::RankComms comms, const MakeOpener& opener, const LeaderLoss& loss);

// Main function of a process with one rank, which the leader has started: argv[1] and on are
// worker_arguments(), the descriptors are kFirstDescriptor and on. Ignores SIGINT, SIGTERM and
// SIGHUP, which a terminal or launcher sends to all processes: the end of the channel ends it. It
// ends with the leader, whatever becomes of that.
int rank_worker_main(int argc, char** argv, const MakeOpener& opener = engine_opener);

inline constexpr int kFirstDescriptor = 3, kNumDescriptors = 4;  // WorkerDescriptors

// Executes the leader's messages until it closes the channel.
Status serve_rank(Channel& channel, exec::Runner& runner);

}  // namespace nereid::runtime
