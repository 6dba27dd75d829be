// A kernel that never ends: waits end after the device's timeout, nothing else waits for the
// kernel, the process exits. A separate program, since the GPU hangs until it exits. Also prints
// the latency of a wait for an empty kernel.
// usage: gpu_hang_test [DEVICE]; exits with 0 within some seconds
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kernels/cuda/gpu_hang_kernels.h"
#include "kernels/open.h"

namespace nereid::kernels {
namespace {

constexpr Duration kTimeout = std::chrono::seconds(2);

Status launched(const char* what) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return ok();
  return internal_error("{}: {}", what, cudaGetErrorString(error));
}

// Median time from the submission of an empty kernel to the end of its wait.
StatusOr<double> time_wait(Stream& stream) {
  std::vector<double> times;
  std::unique_ptr<Event> event;
  for (int i = 0; i < 1001; ++i) {
    const Time start = now();
    ASSIGN_OR_RETURN(event,
                     stream.submit(
                         [](Stream& s) {
                           testing_only::launch_nothing(static_cast<cudaStream_t>(s.native()));
                           return launched("do_nothing");
                         },
                         std::move(event)));
    RETURN_IF_ERROR(event->wait());
    times.push_back(seconds(now() - start));
  }
  std::ranges::nth_element(times, times.begin() + times.size() / 2);
  return times[times.size() / 2];
}

Status hang(const std::string& name) {
  ASSIGN_OR_RETURN(OpenedDevice opened, open_device(name));
  Device& device = *opened.device;
  device.health().set_timeout(kTimeout);
  ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.create_stream());
  ASSIGN_OR_RETURN(std::unique_ptr<Stream> copies, device.create_copy_stream());
  ASSIGN_OR_RETURN(Buffer stop, device.allocate_host(sizeof(int)));
  *static_cast<int*>(stop.data()) = 0;
  ASSIGN_OR_RETURN(const double usual, time_wait(*stream));
  std::printf("a wait for an empty kernel takes %.1f us\n", usual * 1e6);

  const Time start = now();
  ASSIGN_OR_RETURN(const auto event, stream->submit([&](Stream& s) {
    testing_only::launch_spin(static_cast<cudaStream_t>(s.native()),
                              static_cast<const int*>(stop.data()));
    return launched("spin");
  }));
  ASSIGN_OR_RETURN(const auto behind,
                   stream->submit([&](Stream& s) { return s.fill(stop.data(), 0, 0); }));
  if (event->done()) return internal_error("the kernel has ended");
  const Status first = event->wait();
  const double took = seconds(now() - start);
  std::printf("the wait for a kernel that spins ended after %.2f s: %s\n", took,
              std::string(message(first)).c_str());
  const double limit = seconds(kTimeout);
  if (first.ok() || took < 0.9 * limit || took > 2 * limit + 1)
    return internal_error("the wait did not end within its timeout");
  const Time then = now();
  if (behind->wait() != first || copies->submit([](Stream&) { return ok(); }).status() != first ||
      !device.health().is_hung())
    return internal_error("the device does not count as one that hangs");
  copies.reset();
  stream.reset();
  stop = {};
  opened.device.reset();
  if (seconds(now() - then) > limit) return internal_error("something waited for the kernel");
  return ok();
}

int run(const std::string& name) {
  const Status status = hang(name);
  if (!status.ok()) {
    std::printf("FAIL  %s\n", std::string(message(status)).c_str());
    return 1;
  }
  std::printf("PASS  a kernel that spins holds up nobody\n");
  return 0;
}

}  // namespace
}  // namespace nereid::kernels

int main(int argc, char** argv) { return nereid::kernels::run(argc > 1 ? argv[1] : "cuda:0"); }
