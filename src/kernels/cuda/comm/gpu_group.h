// Ranks of one process, one for each GPU (or several on one): their memory, how messages travel by
// size, how the group ends. See exchange.h.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "kernels/cuda/comm/exchange.h"
#include "kernels/cuda/comm/nccl.h"

namespace nereid::kernels::cuda {

enum class Way : uint8_t { kOneShot, kTwoShot, kDirect, kNccl };
std::string_view name_of(Way way);

// A way with its launch shape.
struct Route {
  Way way = Way::kDirect;
  unsigned threads = 256;  // of one-shot and two-shot
  bool operator==(const Route&) const = default;
};

// The fastest route of messages up to a size.
struct RouteUpTo {
  int64_t bytes;
  Route route;
  double us;             // measured; 0: not measured
  std::string measured;  // of all routes, for the log
};

class GpuGroup {
 public:
  static StatusOr<std::shared_ptr<GpuGroup>> create(std::span<Device* const> devices,
                                                    const comm::GroupOptions& options);
  ~GpuGroup();

  int size() const { return static_cast<int>(ranks_.size()); }
  Device& device(int rank) const { return *ranks_[static_cast<size_t>(rank)].device; }
  Peers peers(int rank) const;
  bool shares_a_card() const { return shares_; }
  // Limit of a launch, the same on all ranks.
  unsigned max_blocks() const { return max_blocks_; }
  unsigned blocks_for(int64_t bytes) const;

  // Enqueues out = sum on `stream` of this rank's device.
  Status run(int rank, const Route& route, const void* in, void* out, int64_t count, DType type,
             cudaStream_t stream);
  // Whether the route takes messages of this size, type aside.
  bool takes(const Route& route, int64_t bytes) const;

  Route route(int64_t bytes) const { return find(routes_, bytes).route; }
  // Fused with residual and norm; kDirect, kNccl: in two launches.
  Route norm_route(int64_t bytes) const { return find(norm_routes_, bytes).route; }
  Status run_norm(int rank, const Route& route, const comm::ReducedNorm& args, cudaStream_t stream);
  std::string text() const;

  // OK, or why the group has ended.
  Status failure();
  void abort(const Status& reason);

 private:
  struct Rank {
    Device* device = nullptr;
    Buffer memory;
  };
  GpuGroup() = default;
  Status connect();
  Status prepare();
  // Sets routes: by time, or without a measurement.
  Status measure();
  void assume();
  Status force();
  std::vector<Route> candidates() const;
  static const RouteUpTo& find(const std::vector<RouteUpTo>& routes, int64_t bytes);
  void end(const Status& reason);  // requires the lock

  comm::GroupOptions options_;
  bool shares_ = false;
  unsigned max_blocks_ = 0;
  int num_units_ = 0;  // of a card, for one rank
  bool clusters_ = false;
  std::vector<Rank> ranks_;
  Buffer control_;
  std::unique_ptr<Nccl> nccl_;  // or null
  std::vector<RouteUpTo> routes_, norm_routes_;
  std::mutex mutex_;  // guards the following
  Status reason_;
};

// A communicator for each device, in order of ranks. All are cards of this process that reach each
// other's memory; a card may stand there twice. The devices outlive the communicators; a rank's
// work is done when its communicator is destroyed. Calls of a rank are made by one thread at a
// time, those of different ranks by different ones. `in` and `out` have the same remainder by 16 on
// all ranks. InvalidArgument: number or kind of devices; Unavailable: no peer access.
Status join(std::span<Device* const> devices, const comm::GroupOptions& options,
            std::vector<std::unique_ptr<comm::Communicator>>* ranks);

}  // namespace nereid::kernels::cuda
