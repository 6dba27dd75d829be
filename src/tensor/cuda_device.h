// CUDA device: device memory, page-locked host memory, piecewise uploads, one non-blocking CUDA
// stream per Stream, events polled with short sleeps so that waits end when the device hangs. The
// device is thread-safe; a stream belongs to one thread at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <typeindex>
#include <unordered_map>
#include <utility>

#include "tensor/device.h"

namespace nereid {

// Per stream: NVIDIA's recommendation for cuBLASLt on Hopper.
inline constexpr size_t kCudaWorkspaceBytes = size_t{32} << 20;
// For bf16 rows of a weight, small enough for the L2 cache.
inline constexpr size_t kCudaUnpackedBytes = size_t{32} << 20;
inline constexpr int32_t kCudaCounters = 65536;

// Number of GPUs; 0 without a driver.
int num_cuda_devices();

// Opens device `index`. Unavailable with the driver's reason; InvalidArgument: no such device;
// Unimplemented: compute capability < 8.0 (no bf16).
StatusOr<std::unique_ptr<Device>> open_cuda_device(int index);

class CudaStream final : public Stream {
 public:
  // `runs_kernels` false: without workspace and counters.
  static StatusOr<std::unique_ptr<CudaStream>> create(Device& device, bool runs_kernels);
  ~CudaStream() override;

  const Device& device() const override { return device_; }
  StatusOr<std::unique_ptr<Event>> submit(std::function<Status(Stream&)> work) override {
    return submit(std::move(work), nullptr);
  }
  StatusOr<std::unique_ptr<Event>> submit(std::function<Status(Stream&)> work,
                                          std::unique_ptr<Event> used) override;
  Status wait(const Event& event) override;
  Status copy(void* dst, const void* src, size_t bytes) override;
  Status copy_rows(void* dst, size_t dst_stride, const void* src, size_t src_stride, size_t bytes,
                   size_t rows) override;
  Status fill(void* dst, int byte, size_t bytes) override;
  StatusOr<std::unique_ptr<Recording>> record(const std::function<Status(Stream&)>& work) override;
  Status replay(const Recording& recording) override;
  Status synchronize() override;
  void* native() override { return stream_; }

  cudaStream_t handle() const { return stream_; }

  // Scratch memory of the next kernel: kCudaWorkspaceBytes, 256-byte aligned, reused by every
  // kernel of the stream.
  void* workspace() const { return workspace_.data(); }

  // Further scratch memory: kCudaUnpackedBytes, 256-byte aligned.
  void* unpacked() const {
    return static_cast<std::byte*>(workspace_.data()) + kCudaWorkspaceBytes;
  }

  // kCudaCounters counters, 0 at kernel start; kernels reset those that they use.
  int32_t* counters() const { return static_cast<int32_t*>(counters_.data()); }

  // Kernel state per stream (library handles, caches): one T, created on first use, destroyed
  // before the stream.
  template <class T>
  T& local() {
    std::shared_ptr<void>& slot = locals_[std::type_index(typeid(T))];
    if (!slot) slot = std::make_shared<T>();
    return *static_cast<T*>(slot.get());
  }

 private:
  CudaStream(Device& device, cudaStream_t stream, Buffer workspace, Buffer counters)
      : device_(device),
        stream_(stream),
        workspace_(std::move(workspace)),
        counters_(std::move(counters)) {}
  void look_for_failure();

  Device& device_;
  cudaStream_t stream_;
  Buffer workspace_, counters_;
  std::unordered_map<std::type_index, std::shared_ptr<void>> locals_;
};

}  // namespace nereid
