// Which way is the fastest for each size: all ways that take it, timed in captured graphs when the
// group is made.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <thread>

#include "base/log.h"
#include "kernels/cuda/comm/gpu_group.h"
#include "tensor/cuda_check.h"
#include "tensor/cuda_device.h"

namespace nereid::kernels::cuda {
namespace {

constexpr int64_t kFirstBytes = 4 << 10, kLastBytes = 32 << 20;
constexpr int kReplays = 5;
constexpr int64_t kNormWidth = 4096;

// Events of a rank's replays.
class EventPair {
 public:
  EventPair() = default;
  EventPair(const EventPair&) = delete;
  EventPair& operator=(const EventPair&) = delete;
  ~EventPair() {
    if (begin) cudaEventDestroy(begin);
    if (end) cudaEventDestroy(end);
  }
  cudaEvent_t begin = nullptr, end = nullptr;
};

// One size: `bytes` of bf16; with_norm: rows of kNormWidth.
struct Problem {
  int64_t bytes;
  bool with_norm;
  int calls() const { return bytes <= (1 << 20) ? 50 : 10; }
};

// A rank's side of the measurement, a thread of its own.
class Timer {
 public:
  Timer(GpuGroup& group, int rank, std::barrier<>& meeting)
      : group_(group), rank_(rank), index_(group.device(rank).info().index), meeting_(meeting) {}

  Status prepare() {
    Device& device = group_.device(rank_);
    RETURN_IF_CUDA_ERROR(index_, cudaSetDevice(index_));
    ASSIGN_OR_RETURN(x_, device.allocate(kLastBytes));
    ASSIGN_OR_RETURN(out_, device.allocate(kLastBytes));
    ASSIGN_OR_RETURN(sum_, device.allocate(2 * kLastBytes));
    ASSIGN_OR_RETURN(weight_, device.allocate(2 * kNormWidth));
    for (const Buffer* buffer : {&x_, &out_, &sum_, &weight_})
      RETURN_IF_CUDA_ERROR(index_, cudaMemset(buffer->data(), 0, buffer->size()));
    RETURN_IF_CUDA_ERROR(index_, cudaStreamSynchronize(cudaStreamLegacy));
    ASSIGN_OR_RETURN(stream_, CudaStream::create(device, false));
    RETURN_IF_CUDA_ERROR(index_, cudaEventCreate(&events_.begin));
    RETURN_IF_CUDA_ERROR(index_, cudaEventCreate(&events_.end));
    return ok();
  }

  // Median microseconds of a call. All ranks call it, in the same order.
  StatusOr<double> time(const Problem& problem, const Route& route) {
    double result = 0;
    ASSIGN_OR_RETURN(const auto event, stream_->submit([&](Stream& s) -> Status {
      RETURN_IF_ERROR(call(problem, route));  // a library allocates on first use
      RETURN_IF_ERROR(s.synchronize());
      ASSIGN_OR_RETURN(const std::unique_ptr<Recording> recording, s.record([&](Stream&) -> Status {
        for (int i = 0; i < problem.calls(); ++i) RETURN_IF_ERROR(call(problem, route));
        return ok();
      }));
      std::vector<double> times;
      for (int i = 0; i <= kReplays; ++i) {
        meeting_.arrive_and_wait();
        RETURN_IF_CUDA_ERROR(index_, cudaEventRecord(events_.begin, stream_->handle()));
        RETURN_IF_ERROR(s.replay(*recording));
        RETURN_IF_CUDA_ERROR(index_, cudaEventRecord(events_.end, stream_->handle()));
        RETURN_IF_ERROR(s.synchronize());
        float milliseconds = 0;
        RETURN_IF_CUDA_ERROR(index_,
                             cudaEventElapsedTime(&milliseconds, events_.begin, events_.end));
        if (i > 0) times.push_back(1e3 * milliseconds / problem.calls());
      }
      std::ranges::nth_element(times, times.begin() + kReplays / 2);
      result = times[kReplays / 2];
      return ok();
    }));
    RETURN_IF_ERROR(event->wait());
    RETURN_IF_ERROR(group_.failure());
    return result;
  }

 private:
  Status call(const Problem& problem, const Route& route) {
    const int64_t count = problem.bytes / 2;
    if (!problem.with_norm)
      return group_.run(rank_, route, x_.data(), out_.data(), count, DType::kBF16,
                        stream_->handle());
    comm::ReducedNorm norm;
    norm.x = View::matrix(x_.data(), DType::kBF16, count / kNormWidth, kNormWidth);
    norm.sum = View::matrix(sum_.data(), DType::kF32, norm.x.rows, kNormWidth);
    norm.weight = weight_.data();
    norm.eps = 1e-5f;
    norm.out = View::matrix(out_.data(), DType::kBF16, norm.x.rows, kNormWidth);
    return group_.run_norm(rank_, route, norm, stream_->handle());
  }

  GpuGroup& group_;
  const int rank_, index_;
  std::barrier<>& meeting_;
  Buffer x_, out_, sum_, weight_;
  EventPair events_;
  std::unique_ptr<CudaStream> stream_;
};

}  // namespace

std::vector<Route> GpuGroup::candidates() const {
  std::vector<Route> routes;
  for (const Way way : {Way::kOneShot, Way::kTwoShot})
    for (const unsigned threads : {128u, 256u, 512u}) routes.push_back({way, threads});
  routes.push_back({Way::kDirect, 0});
  if (nccl_) routes.push_back({Way::kNccl, 0});
  return routes;
}

Status GpuGroup::measure() {
  const Time start = now();
  assume();  // sums in two launches have a route while norms are measured
  std::vector<Problem> problems;
  for (int64_t bytes = kFirstBytes; bytes <= kLastBytes; bytes *= 2)
    problems.push_back({bytes, false});
  for (int64_t bytes = 2 * kNormWidth; bytes <= (2 << 20); bytes *= 2)
    problems.push_back({bytes, true});
  // Norms: one-shot, two-shot, two launches; threads follow from the row.
  const std::vector<Route> of_norm = {{Way::kOneShot, 0}, {Way::kTwoShot, 0}, {Way::kDirect, 0}};
  std::barrier<> meeting(size());
  std::vector<Status> results(ranks_.size());
  std::vector<RouteUpTo> routes, norm_routes;
  std::vector<double> times(ranks_.size());
  const auto measure_as = [&](int rank) -> Status {
    Timer timer(*this, rank, meeting);
    const Status prepared = timer.prepare();
    if (!prepared.ok()) abort(prepared);
    meeting.arrive_and_wait();
    RETURN_IF_ERROR(failure());
    for (const Problem& problem : problems) {
      RouteUpTo best = {problem.bytes, {}, 0, {}};
      for (const Route& route : problem.with_norm ? of_norm : candidates()) {
        if (!takes(route, problem.bytes)) continue;
        ASSIGN_OR_RETURN(times[static_cast<size_t>(rank)], timer.time(problem, route));
        meeting.arrive_and_wait();
        const double us = std::ranges::max(times);
        meeting.arrive_and_wait();
        best.measured += fmt::format("{}{} {} {:.2f}", best.measured.empty() ? "" : ", ",
                                     name_of(route.way), route.threads, us);
        if (best.us == 0 || us < best.us) best.route = route, best.us = us;
      }
      if (rank == 0) (problem.with_norm ? norm_routes : routes).push_back(best);
      // Norms in two launches use what was measured.
      if (rank == 0 && !problem.with_norm && problem.bytes == kLastBytes) routes_ = routes;
      meeting.arrive_and_wait();
    }
    return ok();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size(); ++rank)
    threads.emplace_back([&, rank] {
      Status& result = results[static_cast<size_t>(rank)];
      result = measure_as(rank);
      if (result.ok()) return;
      abort(annotate(result, fmt::format("rank {} measures", rank)));
      meeting.arrive_and_drop();
    });
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) RETURN_IF_ERROR(result);
  norm_routes_ = norm_routes;
  log_info("{} ranks on GPUs: exchanges measured in {:.1f} s", size(), seconds(now() - start));
  return ok();
}

}  // namespace nereid::kernels::cuda
