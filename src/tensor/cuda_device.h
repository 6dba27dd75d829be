// The device seam over the CUDA runtime: plain device memory, page-locked host memory, uploads in
// pieces through the latter, one non-blocking stream per Stream, events that are asked again and
// again with short sleeps, so that a wait can end when the device hangs.
// Thread-safe per device; a stream belongs to one thread at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <typeindex>
#include <unordered_map>
#include <utility>

#include "tensor/device.h"

namespace nereid {

// Of each stream: what cuBLASLt's vendor advises for Hopper.
inline constexpr size_t kCudaWorkspaceBytes = size_t{32} << 20;
// For rows of a weight as bf16, so many that they stay in a second-level cache.
inline constexpr size_t kCudaUnpackedBytes = size_t{32} << 20;
inline constexpr int32_t kCudaCounters = 65536;

// GPUs that the driver shows; 0 when there is no driver.
int num_cuda_devices();

// Device `index`. Unavailable with the driver's reason, InvalidArgument for a number that does not
// exist, Unimplemented below compute capability 8.0 (bf16 needs it).
StatusOr<std::unique_ptr<Device>> open_cuda_device(int index);

class CudaStream final : public Stream {
 public:
  // Without `runs_kernels` it has no workspace and no counters.
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

  // Device scratch for the kernel about to be enqueued, kCudaWorkspaceBytes, 256-byte aligned. The
  // next kernel of this stream gets the same bytes, which is safe because they run in order.
  void* workspace() const { return workspace_.data(); }

  // Device scratch beside the workspace, kCudaUnpackedBytes, 256-byte aligned.
  void* unpacked() const {
    return static_cast<std::byte*>(workspace_.data()) + kCudaWorkspaceBytes;
  }

  // kCudaCounters counters, zero when a kernel begins; a kernel that counts sets them back.
  int32_t* counters() const { return static_cast<int32_t*>(counters_.data()); }

  // State that kernels keep with the stream (library handles, caches): one T per stream, made on
  // first use and destroyed before the stream.
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
