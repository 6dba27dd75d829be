#include "kernels/cuda/comm/gpu_group.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <utility>

#include "base/log.h"
#include "kernels/cuda/launch.h"
#include "tensor/cuda_check.h"

namespace nereid::kernels::cuda {
namespace {

constexpr Duration kMaxGroupLimit = std::chrono::hours(24);

std::atomic_ref<uint32_t> ended_flag(const Buffer& control) {
  return std::atomic_ref<uint32_t>(static_cast<Control*>(control.data())->ended);
}

// Maps the memory of `to` for kernels of `from`, for the rest of the process.
Status reach(int from, int to) {
  static std::mutex mutex;
  static std::set<std::pair<int, int>> reached;
  std::lock_guard lock(mutex);
  if (from == to || reached.contains({from, to})) return ok();
  int can = 0;
  RETURN_IF_CUDA_ERROR(from, cudaDeviceCanAccessPeer(&can, from, to));
  if (!can)
    return unavailable("cuda:{} does not reach the memory of cuda:{} (no peer access)", from, to);
  RETURN_IF_CUDA_ERROR(from, cudaSetDevice(from));
  const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled)
    cudaGetLastError();  // by a library
  else
    RETURN_IF_ERROR(cuda_status(error, "cudaDeviceEnablePeerAccess", from));
  reached.insert({from, to});
  return ok();
}

}  // namespace

std::string_view name_of(Way way) {
  constexpr std::string_view kNames[] = {"one-shot", "two-shot", "direct", "NCCL"};
  return kNames[static_cast<size_t>(way)];
}

StatusOr<std::shared_ptr<GpuGroup>> GpuGroup::create(std::span<Device* const> devices,
                                                     const comm::GroupOptions& options) {
  if (devices.empty() || devices.size() > kMaxPeers)
    return invalid_argument("devices: {} ranks are not in [1, {}]", devices.size(), kMaxPeers);
  if (options.time_limit <= Duration::zero() || options.time_limit > kMaxGroupLimit)
    return invalid_argument("time_limit: {} s is not in (0, {}]", seconds(options.time_limit),
                            seconds(kMaxGroupLimit));
  for (const Device* device : devices)
    if (device->info().kind != DeviceKind::kCuda)
      return invalid_argument("devices: '{}' is no GPU", device->info().id());
  std::shared_ptr<GpuGroup> group(new GpuGroup());
  group->options_ = options;
  std::map<int, int> ranks_of;  // card -> ranks on it
  for (Device* device : devices) {
    group->ranks_.push_back({device, {}});
    ++ranks_of[device->info().index];
  }
  group->num_units_ = kMaxExchangeBlocks;
  group->clusters_ = true;
  for (const Device* device : devices) {
    const int sharing = ranks_of[device->info().index];
    group->shares_ |= sharing > 1;
    group->num_units_ = std::min(group->num_units_, device->info().num_units / sharing);
    group->clusters_ &= device->info().sm == 90;
  }
  group->max_blocks_ = static_cast<unsigned>(std::max(group->num_units_, 1));
  if (group->size() == 1) return group;
  RETURN_IF_ERROR(group->connect());
  RETURN_IF_ERROR(group->prepare());
  if (!options.way.empty())
    RETURN_IF_ERROR(group->force());
  else if (group->shares_)
    group->assume();
  else
    RETURN_IF_ERROR(group->measure());
  return group;
}

Status GpuGroup::connect() {
  for (const Rank& a : ranks_)
    for (const Rank& b : ranks_)
      RETURN_IF_ERROR(reach(a.device->info().index, b.device->info().index));
  ASSIGN_OR_RETURN(control_, ranks_[0].device->allocate_host(sizeof(Control)));
  *static_cast<Control*>(control_.data()) = {};
  for (Rank& rank : ranks_) {
    ASSIGN_OR_RETURN(rank.memory, rank.device->allocate(sizeof(PeerMemory)));
  }
  std::vector<int> devices;
  for (const Rank& rank : ranks_) devices.push_back(rank.device->info().index);
  if (options_.deterministic || shares_) return ok();
  StatusOr<std::unique_ptr<Nccl>> nccl = Nccl::create(devices);
  if (nccl.ok())
    nccl_ = *std::move(nccl);
  else
    log_info("ranks exchange without NCCL: {}", message(nccl.status()));
  return ok();
}

// Loads the kernels, empties the buffers.
Status GpuGroup::prepare() {
  for (const Rank& rank : ranks_) {
    const int index = rank.device->info().index;
    RETURN_IF_CUDA_ERROR(index, cudaSetDevice(index));
    RETURN_IF_CUDA_ERROR(index, load_exchange_kernels(size()));
    RETURN_IF_CUDA_ERROR(index, load_direct_kernels(size()));
    RETURN_IF_CUDA_ERROR(index, load_exchange_norm_kernels(size()));
    RETURN_IF_CUDA_ERROR(
        index, clear_peer_memory(static_cast<PeerMemory*>(rank.memory.data()), cudaStreamLegacy));
    RETURN_IF_CUDA_ERROR(index, cudaStreamSynchronize(cudaStreamLegacy));
  }
  return ok();
}

GpuGroup::~GpuGroup() {
  // NCCL's communicators end before the memory of their devices.
  nccl_.reset();
}

Peers GpuGroup::peers(int rank) const {
  Peers peers = {};
  for (size_t p = 0; p < ranks_.size(); ++p)
    peers.memory[p] = static_cast<PeerMemory*>(ranks_[p].memory.data());
  peers.control = static_cast<Control*>(control_.data());
  peers.limit_ns = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(options_.time_limit).count());
  peers.rank = rank;
  peers.size = size();
  peers.begins_next = !shares_;
  return peers;
}

unsigned GpuGroup::blocks_for(int64_t bytes) const {
  constexpr int64_t kBytes = 8 << 10;  // 16 for each thread of a block
  return static_cast<unsigned>(std::clamp<int64_t>((bytes + kBytes - 1) / kBytes, 1, max_blocks_));
}

bool GpuGroup::takes(const Route& route, int64_t bytes) const {
  switch (route.way) {
    case Way::kOneShot:
      return fits_half(false, bytes, size());
    case Way::kTwoShot:
      return fits_half(true, bytes, size());
    case Way::kDirect:
      return true;
    case Way::kNccl:
      return nccl_ != nullptr;
  }
  return false;
}

Status GpuGroup::run(int rank, const Route& route, const void* in, void* out, int64_t count,
                     DType type, cudaStream_t stream) {
  const int64_t bytes = count * static_cast<int64_t>(size_of(type));
  if (route.way == Way::kNccl) return nccl_->all_reduce(rank, in, out, count, type, stream);
  const bool exchanges = route.way != Way::kDirect && fits_exchange(in, out, bytes);
  const cudaError_t error =
      exchanges
          ? launch_exchange(peers(rank), {route.way == Way::kTwoShot, route.threads, max_blocks_},
                            in, out, count, type, stream)
          : launch_direct_sum(peers(rank), in, out, count, type, /*scatter=*/false,
                              blocks_for(bytes), stream);
  return cuda_status(error, "all_reduce", device(rank).info().index);
}

// Norm of x in place of the sum, see Norm.
static Norm norm_of(const comm::ReducedNorm& args) {
  Norm norm = {};
  norm.x = args.sum;
  norm.add = args.x;
  norm.weight.data = args.weight;
  norm.weight.n = 1;
  norm.weight.k = args.x.cols;
  norm.eps = args.eps;
  norm.weight_offset = args.weight_offset;
  norm.out = args.out;
  norm.sum = args.sum;
  norm.scales = args.scales;
  return norm;
}

Status GpuGroup::run_norm(int rank, const Route& route, const comm::ReducedNorm& a,
                          cudaStream_t stream) {
  const int index = device(rank).info().index;
  if (size() > 1 && (route.way == Way::kOneShot || route.way == Way::kTwoShot) &&
      a.x.dtype == DType::kBF16 && a.out.dtype != DType::kF32) {
    const bool two_shot = route.way == Way::kTwoShot;
    const NormRows rows = {a.x.data,
                           static_cast<float*>(a.sum.data),
                           a.weight,
                           a.out.data,
                           static_cast<float*>(a.scales.data),
                           a.sum.stride,
                           a.out.stride,
                           a.scales.stride,
                           a.eps,
                           a.weight_offset,
                           static_cast<int>(a.x.cols),
                           a.x.rows};
    if (fits_exchange_norm(rows, two_shot, size(), num_units_))
      return cuda_status(
          launch_exchange_norm(peers(rank), rows, two_shot, num_units_, clusters_, stream),
          "all_reduce_norm", index);
  }
  const int64_t count = a.x.rows * a.x.cols;
  if (size() > 1) {
    const int64_t bytes = count * static_cast<int64_t>(size_of(a.x.dtype));
    RETURN_IF_ERROR(run(rank, this->route(bytes), a.x.data, a.x.data, count, a.x.dtype, stream));
  }
  const Norm norm = norm_of(a);
  if (!row<Norm>().takes(norm))
    return invalid_argument("all_reduce_norm: rows of {} numbers are too wide for {}", a.x.cols,
                            nereid::name_of(a.out.dtype));
  return cuda_status(row<Norm>().launch(norm, {}, stream), "norm", index);
}

const RouteUpTo& GpuGroup::find(const std::vector<RouteUpTo>& routes, int64_t bytes) {
  const auto found =
      std::ranges::find_if(routes, [&](const RouteUpTo& route) { return bytes <= route.bytes; });
  return found != routes.end() ? *found : routes.back();
}

// Before the largest size, messages grow by a factor of two, so the sizes between are guessed well.
void GpuGroup::assume() {
  constexpr int64_t kOneShotBytes = 256 << 10, kTwoShotBytes = 2 << 20;
  routes_ = {{kOneShotBytes, {Way::kOneShot, 256}, 0, {}},
             {kTwoShotBytes, {Way::kTwoShot, 512}, 0, {}},
             {INT64_MAX, {Way::kDirect, 0}, 0, {}}};
  norm_routes_ = routes_;
}

// The way of the options for what it takes, then the usual ones.
Status GpuGroup::force() {
  assume();
  std::vector<RouteUpTo> routes;
  if (options_.way == "one-shot" || options_.way == "two-shot") {
    const Way way = options_.way == "one-shot" ? Way::kOneShot : Way::kTwoShot;
    int64_t bytes = kHalfBytes;
    while (!takes({way, 0}, bytes)) bytes -= 1024;
    routes = {{bytes, {way, 256}, 0, {}}, {INT64_MAX, {Way::kDirect, 0}, 0, {}}};
  } else if (options_.way == "direct") {
    routes = {{INT64_MAX, {Way::kDirect, 0}, 0, {}}};
  } else if (options_.way == "nccl") {
    if (!nccl_) return unavailable("way 'nccl': this group has no NCCL");
    routes = {{INT64_MAX, {Way::kNccl, 0}, 0, {}}};
  } else {
    return invalid_argument("way '{}' is not one-shot, two-shot, direct or nccl", options_.way);
  }
  routes_ = norm_routes_ = routes;
  return ok();
}

std::string GpuGroup::text() const {
  if (size() == 1) return "one rank: nothing is exchanged";
  std::string text = fmt::format("{} ranks, {}{}", size(),
                                 nccl_ ? "NCCL " + nccl_->version() : "own kernels alone",
                                 shares_ ? ", of them some on one card: nothing was measured" : "");
  const auto add = [&](std::string_view what, const std::vector<RouteUpTo>& routes) {
    for (const RouteUpTo& r : routes) {
      if (r.us == 0) continue;
      text += fmt::format("\n{} {:>9} bytes: {} {}, {:.2f} us; {}", what, r.bytes,
                          name_of(r.route.way), r.route.threads, r.us, r.measured);
    }
  };
  add("sum ", routes_);
  add("norm", norm_routes_);
  return text;
}

Status GpuGroup::failure() {
  if (size() == 1 || ended_flag(control_).load(std::memory_order_acquire) == 0) {
    std::lock_guard lock(mutex_);
    return reason_.ok() ? ok() : Status(reason_.code(), reason_.message());
  }
  std::lock_guard lock(mutex_);
  if (reason_.ok()) {
    const auto& control = *static_cast<const Control*>(control_.data());
    Status reason = deadline_exceeded("a wait for another rank took longer than {:.3f} s",
                                      seconds(options_.time_limit));
    for (int r = 0; r < size(); ++r)
      if (const Control::Waited& waited = control.waited[r]; waited.peer != 0)
        reason = deadline_exceeded("rank {} waited longer than {:.3f} s for rank {} in exchange {}",
                                   r, seconds(options_.time_limit), waited.peer - 1, waited.epoch);
    end(reason);
  }
  return Status(reason_.code(), reason_.message());
}

void GpuGroup::abort(const Status& reason) {
  std::lock_guard lock(mutex_);
  end(reason);
}

void GpuGroup::end(const Status& reason) {
  if (!reason_.ok()) return;
  reason_ = Status(reason.code(), reason.message());
  if (size() == 1) return;
  ended_flag(control_).store(1, std::memory_order_release);
  if (nccl_) nccl_->abort();
}

}  // namespace nereid::kernels::cuda
