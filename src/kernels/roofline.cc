// Bandwidth and arithmetic benchmarks.
#include "kernels/roofline.h"

#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "kernels/cpu/peaks.h"
#include "tensor/thread_pool.h"

namespace nereid::kernels {
namespace {

constexpr size_t kMinBytes = size_t{256} << 20;
constexpr size_t kMaxBytes = size_t{1} << 30;
constexpr size_t kMaxGpuBytes = size_t{4} << 30;  // smaller copies are slower on the largest GPUs
constexpr int kRounds = 7;

// CPU: twice the last-level cache, so that reads come from memory.
size_t probe_bytes(const DeviceInfo& info) {
  if (info.kind != DeviceKind::kCpu) return std::min(kMaxGpuBytes, info.memory_bytes / 16);
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::clamp(cache > 0 ? 2 * static_cast<size_t>(cache) : kMinBytes, kMinBytes, kMaxBytes);
}

// Best of several rounds of `work`, in seconds.
template <class F>
double best_seconds(F work) {
  double best = 1e30;
  for (int i = 0; i < kRounds; ++i) {
    const Time start = now();
    work();
    best = std::min(best, seconds(now() - start));
  }
  return best;
}

Status measure_cpu(const DeviceInfo& info, const Buffer& memory, ThreadPool& pool, Roofline& out) {
  constexpr int64_t kPiece = int64_t{1} << 20;
  const auto bytes = static_cast<int64_t>(memory.size()) / kPiece * kPiece;
  out.read_bytes_per_s =
      static_cast<double>(bytes) / best_seconds([&] {
        pool.parallel_for(bytes, 4 * kPiece, [&](int64_t begin, int64_t end, int) {
          cpu::read_bytes(info, memory.bytes() + begin, end - begin);
        });
      });
  constexpr int64_t kIterations = 20000;
  const int64_t items = 8 * pool.num_threads();
  for (const cpu::FlopsProbe& probe : cpu::flops_probes(info)) {
    const double flops = probe.run(kIterations) * static_cast<double>(items);
    const double time = best_seconds([&] {
      pool.parallel_for(items, 1, [&](int64_t begin, int64_t end, int) {
        for (; begin < end; ++begin) probe.run(kIterations);
      });
    });
    out.flops_by_kernel.push_back({std::string(probe.name), flops / time});
    out.flops_per_s = std::max(out.flops_per_s, flops / time);
  }
  return ok();
}

}  // namespace

StatusOr<Roofline> measure_roofline(Device& device) {
  const DeviceInfo& info = device.info();
  const size_t bytes = probe_bytes(info);
  ASSIGN_OR_RETURN(const Buffer memory, device.allocate(bytes));
  ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device.create_stream());
  const auto submit = [&](std::function<Status(Stream&)> work) -> Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<Event> event, stream->submit(std::move(work)));
    return event->wait();
  };
  RETURN_IF_ERROR(submit([&](Stream& s) { return s.fill(memory.data(), 1, bytes); }));
  Roofline roofline;
  if (info.kind == DeviceKind::kCpu) {
    RETURN_IF_ERROR(submit([&](Stream& s) {
      return measure_cpu(info, memory, *static_cast<ThreadPool*>(s.native()), roofline);
    }));
    return roofline;
  }
  constexpr int kCopies = 8;
  Status status;
  const double time = best_seconds([&] {
    status = submit([&](Stream& s) -> Status {
      for (int i = 0; i < kCopies; ++i)
        RETURN_IF_ERROR(s.copy(memory.bytes(), memory.bytes() + bytes / 2, bytes / 2));
      return ok();
    });
  });
  RETURN_IF_ERROR(status);
  roofline.read_bytes_per_s = kCopies * static_cast<double>(bytes) / time;
  return roofline;
}

}  // namespace nereid::kernels
