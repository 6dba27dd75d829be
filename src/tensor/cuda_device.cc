#include "tensor/cuda_device.h"

#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "tensor/cpu_probe.h"
#include "tensor/cuda_check.h"
#include "tensor/cuda_range.h"
#include "tensor/thread_pool.h"

namespace nereid {

Status cuda_status(cudaError_t error, const char* call, int device) {
  if (error == cudaSuccess) return ok();
  cudaGetLastError();
  const char* reason = cudaGetErrorString(error);
  switch (error) {
    case cudaErrorMemoryAllocation:
      return resource_exhausted("cuda:{}: {}: {}", device, call, reason);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorDevicesUnavailable:
    case cudaErrorStubLibrary:
    case cudaErrorCompatNotSupportedOnDevice:
      return unavailable("cuda:{}: {}: {}", device, call, reason);
    default:
      return internal_error("cuda:{}: {}: {} ({})", device, call, reason, cudaGetErrorName(error));
  }
}

namespace {

// Sleep before the next poll: a small share of the time waited so far, because the sleep may
// outlast the work.
Duration next_sleep(Duration waited) {
  constexpr Duration kSpin = std::chrono::microseconds(50);
  constexpr Duration kShortest = std::chrono::microseconds(10);
  constexpr Duration kLongest = std::chrono::microseconds(50);
  constexpr Duration kIdle = std::chrono::milliseconds(1), kIdleAfter = std::chrono::seconds(1);
  if (waited < kSpin) return Duration();
  return waited < kIdleAfter ? std::clamp(waited / 16, kShortest, kLongest) : kIdle;
}

// Timer slack of the thread, which the kernel adds to sleeps (default 50 us).
void sleep_precisely() {
  constexpr unsigned long kSlackNanoseconds = 1000;
  thread_local const int done = ::prctl(PR_SET_TIMERSLACK, kSlackNanoseconds, 0, 0, 0);
  static_cast<void>(done);
}

// Polls `query` until the work is done, since cudaEventSynchronize() has no timeout.
// cudaErrorNotReady: the device hangs. Without `sleeps` the thread spins for a while first.
template <class Query>
cudaError_t poll(Health& health, bool sleeps, const Query& query) {
  constexpr Duration kSpinAnyway = std::chrono::milliseconds(100);
  const Time start = now();
  std::optional<Stall> stall;
  for (;;) {
    const cudaError_t error = query();
    if (error != cudaErrorNotReady) {
      if (error == cudaSuccess) health.made_progress();
      return error;
    }
    cudaGetLastError();  // clears cudaErrorNotReady, which is no launch error
    const Time at = now();
    if (!stall) stall.emplace(health);
    if (health.is_hung() || stall->over(at)) {
      health.hang(stall->error());
      return cudaErrorNotReady;
    }
    const Duration sleep = sleeps || at - start > kSpinAnyway ? next_sleep(at - start) : Duration();
    if (sleep == Duration()) continue;
    sleep_precisely();
    std::this_thread::sleep_for(sleep);
  }
}

// Covers everything issued to its stream before recording, and the status of the host work.
class CudaEvent final : public Event {
 public:
  CudaEvent(Device& device, cudaEvent_t event, Status status)
      : device_(device), event_(event), status_(std::move(status)) {}
  ~CudaEvent() override {
    if (event_) cudaEventDestroy(event_);
  }
  Status wait() override {
    if (event_) {
      Health& health = device_.health();
      const cudaError_t error =
          poll(health, /*sleeps=*/true, [this] { return cudaEventQuery(event_); });
      if (error == cudaErrorNotReady) return health.failure();
      const Status finished = cuda_status(error, "cudaEventQuery", device_.info().index);
      // The event was recorded in order: the error is from work that ran, and sticky.
      if (!finished.ok()) health.fail(finished);
      if (status_.ok()) status_ = finished;
    }
    return status_;
  }
  bool done() override {
    if (!event_ || cudaEventQuery(event_) != cudaErrorNotReady) return true;
    cudaGetLastError();
    return false;
  }
  cudaEvent_t handle() const { return event_; }
  // Reuse for new work; `status` of its host part.
  void reset(Status status) { status_ = std::move(status); }

 private:
  Device& device_;
  cudaEvent_t event_;  // null: recording failed, see status_
  Status status_;
};

class CudaRecording final : public Recording {
 public:
  explicit CudaRecording(cudaGraphExec_t graph) : graph_(graph) {}
  ~CudaRecording() override { cudaGraphExecDestroy(graph_); }
  cudaGraphExec_t graph() const { return graph_; }

 private:
  cudaGraphExec_t graph_;
};

// Shows the progress of long uploads: a bar, or lines of the log.
class UploadLog {
 public:
  UploadLog(std::string device, size_t bytes)
      : device_(std::move(device)),
        bytes_(bytes),
        bar_("loading onto " + device_, static_cast<int64_t>(bytes), ProgressUnit::kBytes) {}

  void is_at(size_t done) {
    bar_.add(static_cast<int64_t>(done) - bar_.done());
    if (has_progress_bars() || now() - last_ < kPeriod) return;
    last_ = now();
    log_info("{}: {:.0f} % of {:.1f} GiB uploaded", device_,
             100 * static_cast<double>(done) / static_cast<double>(bytes_),
             static_cast<double>(bytes_) / (1 << 30));
  }

 private:
  static constexpr Duration kPeriod = std::chrono::seconds(2);
  const std::string device_;
  const size_t bytes_;
  ProgressBar bar_;
  Time last_ = now();
};

// Uploads through two page-locked pieces: one is copied to the device while several threads fill
// the other, possibly from a file.
Status upload_in_pieces(Device& device, std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kPiece = size_t{32} << 20;
  constexpr int64_t kGrain = 1 << 20;
  constexpr int kMostThreads = 8;
  struct Piece {
    Buffer memory;
    std::unique_ptr<Event> sent;
  };
  Piece pieces[2];
  for (Piece& piece : pieces) {
    ASSIGN_OR_RETURN(piece.memory, device.allocate_host(std::min(bytes, kPiece)));
  }
  // declared after the pieces: its destructor waits for their readers
  ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device.create_copy_stream());
  ThreadPool threads(bytes > kPiece ? std::min(num_usable_cores(), kMostThreads) : 1);
  UploadLog log(device.info().id(), bytes);
  for (size_t at = 0, turn = 0; at < bytes; turn ^= 1) {
    Piece& piece = pieces[turn];
    if (piece.sent) RETURN_IF_ERROR(piece.sent->wait());
    const size_t size = std::min(bytes - at, kPiece);
    threads.parallel_for(static_cast<int64_t>(size), kGrain,
                         [&](int64_t begin, int64_t end, int /*thread*/) {
                           std::memcpy(piece.memory.bytes() + begin, from + at + begin,
                                       static_cast<size_t>(end - begin));
                         });
    ASSIGN_OR_RETURN(piece.sent, stream->submit([&](Stream& s) {
      return s.copy(to + at, piece.memory.data(), size);
    }));
    at += size;
    log.is_at(at);
  }
  for (Piece& piece : pieces)
    if (piece.sent) RETURN_IF_ERROR(piece.sent->wait());
  return ok();
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(DeviceInfo info) : info_(std::move(info)) {
    health().set_hooks(nullptr, &leave_at_exit);
  }

  const DeviceInfo& info() const override { return info_; }

  StatusOr<Buffer> allocate(size_t bytes) override {
    const int index = info_.index;
    RETURN_IF_CUDA_ERROR(index, cudaSetDevice(index));
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, std::max<size_t>(bytes, 1));
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return resource_exhausted("cuda:{}: cannot allocate {} bytes: {} of {} bytes are free", index,
                                bytes, free_bytes(), info_.memory_bytes);
    }
    RETURN_IF_ERROR(cuda_status(error, "cudaMalloc", index));
    return Buffer(data, bytes, [this](void* p) {
      if (health().is_hung()) return;  // running work may use it, and the call would block
      cudaSetDevice(info_.index);
      cudaFree(p);
    });
  }

  StatusOr<Buffer> allocate_host(size_t bytes) override {
    const int index = info_.index;
    RETURN_IF_CUDA_ERROR(index, cudaSetDevice(index));
    void* data = nullptr;
    const cudaError_t error =
        cudaHostAlloc(&data, std::max<size_t>(bytes, 1), cudaHostAllocPortable);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return resource_exhausted("cuda:{}: cannot allocate {} bytes of page-locked host memory",
                                index, bytes);
    }
    RETURN_IF_ERROR(cuda_status(error, "cudaHostAlloc", index));
    return Buffer(data, bytes, [this](void* p) {
      if (!health().is_hung()) cudaFreeHost(p);
    });
  }

  StatusOr<Buffer> upload(const void* host, size_t bytes) override {
    ASSIGN_OR_RETURN(Buffer buffer, allocate(bytes));
    if (bytes > 0) {
      RETURN_IF_ERROR(
          upload_in_pieces(*this, buffer.bytes(), static_cast<const std::byte*>(host), bytes));
    }
    return buffer;
  }

  StatusOr<std::unique_ptr<Stream>> create_stream() override {
    ASSIGN_OR_RETURN(std::unique_ptr<CudaStream> stream, CudaStream::create(*this, true));
    return std::unique_ptr<Stream>(std::move(stream));
  }

  StatusOr<std::unique_ptr<Stream>> create_copy_stream() override {
    ASSIGN_OR_RETURN(std::unique_ptr<CudaStream> stream, CudaStream::create(*this, false));
    return std::unique_ptr<Stream>(std::move(stream));
  }

  size_t free_bytes() const override {
    size_t free = 0, total = 0;
    if (cudaSetDevice(info_.index) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess)
      return 0;
    return free;
  }

 private:
  // CUDA's exit handlers would wait for hung work; registered earlier, they run later than this.
  static void leave_at_exit() {
    ::on_exit(
        [](int status, void*) {
          std::fflush(nullptr);
          ::_exit(status);
        },
        nullptr);
  }

  DeviceInfo info_;
};

}  // namespace

int num_cuda_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

StatusOr<std::unique_ptr<Device>> open_cuda_device(int index) {
  int count = 0;
  RETURN_IF_CUDA_ERROR(index, cudaGetDeviceCount(&count));
  if (index < 0 || index >= count)
    return invalid_argument("device 'cuda:{}': this machine has {} GPU(s), cuda:0 to cuda:{}",
                            index, count, count - 1);
  RETURN_IF_CUDA_ERROR(index, cudaSetDevice(index));
  cudaDeviceProp properties;
  RETURN_IF_CUDA_ERROR(index, cudaGetDeviceProperties(&properties, index));
  DeviceInfo info;
  info.kind = DeviceKind::kCuda;
  info.index = index;
  info.name = properties.name;
  info.sm = properties.major * 10 + properties.minor;
  info.num_units = properties.multiProcessorCount;
  info.workspace_bytes = kCudaWorkspaceBytes + kCudaUnpackedBytes + kCudaCounters * sizeof(int32_t);
  RETURN_IF_CUDA_ERROR(index, cudaMemGetInfo(&info.free_bytes, &info.memory_bytes));
  if (info.sm < 80)
    return unsupported("cuda:{} ({}): compute capability {}.{}; 8.0 or newer is needed", index,
                       info.name, properties.major, properties.minor);
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(std::move(info)));
}

StatusOr<std::unique_ptr<CudaStream>> CudaStream::create(Device& device, bool runs_kernels) {
  const int index = device.info().index;
  Buffer workspace, counters;
  if (runs_kernels) {
    ASSIGN_OR_RETURN(workspace, device.allocate(kCudaWorkspaceBytes + kCudaUnpackedBytes));
    ASSIGN_OR_RETURN(counters, device.allocate(kCudaCounters * sizeof(int32_t)));
    RETURN_IF_CUDA_ERROR(index, cudaMemset(counters.data(), 0, counters.size()));
    RETURN_IF_CUDA_ERROR(index, cudaStreamSynchronize(cudaStreamLegacy));
  }
  RETURN_IF_CUDA_ERROR(index, cudaSetDevice(index));
  cudaStream_t stream = nullptr;
  RETURN_IF_CUDA_ERROR(index, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return std::unique_ptr<CudaStream>(
      new CudaStream(device, stream, std::move(workspace), std::move(counters)));
}

CudaStream::~CudaStream() {
  if (device_.health().is_hung()) {  // the calls would block
    static_cast<void>(new auto(std::move(locals_)));
    return;
  }
  cudaSetDevice(device_.info().index);
  cudaStreamSynchronize(stream_);
  locals_.clear();
  cudaStreamDestroy(stream_);
}

StatusOr<std::unique_ptr<Event>> CudaStream::submit(std::function<Status(Stream&)> work,
                                                    std::unique_ptr<Event> used) {
  RETURN_IF_ERROR(device_.health().failure());
  const CudaRange range("submit");
  const int index = device_.info().index;
  Status status = cuda_status(cudaSetDevice(index), "cudaSetDevice", index);
  if (status.ok()) status = work(*this);
  // Recorded even if `work` failed: its enqueued part still uses the caller's memory.
  cudaEvent_t event = used ? static_cast<CudaEvent&>(*used).handle() : nullptr;
  const bool again = event != nullptr;
  Status recorded;
  if (!again) {
    recorded = cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                           "cudaEventCreateWithFlags", index);
  }
  if (recorded.ok()) {
    recorded = cuda_status(cudaEventRecord(event, stream_), "cudaEventRecord", index);
    if (!recorded.ok()) {
      if (!again) cudaEventDestroy(event);
      event = nullptr;
    }
  }
  if (status.ok()) status = recorded;
  if (!status.ok()) look_for_failure();
  if (again && event) {
    static_cast<CudaEvent&>(*used).reset(std::move(status));
    return used;
  }
  return std::unique_ptr<Event>(std::make_unique<CudaEvent>(device_, event, std::move(status)));
}

// After an error: a sticky one is returned by every call.
void CudaStream::look_for_failure() {
  const cudaError_t error = cudaStreamQuery(stream_);
  if (error == cudaErrorNotReady) return;
  const Status status = cuda_status(error, "cudaStreamQuery", device_.info().index);
  if (!status.ok()) device_.health().fail(status);
}

Status CudaStream::wait(const Event& event) {
  const cudaEvent_t handle = static_cast<const CudaEvent&>(event).handle();
  if (!handle) return ok();  // its status has the reason
  RETURN_IF_CUDA_ERROR(device_.info().index, cudaStreamWaitEvent(stream_, handle));
  return ok();
}

Status CudaStream::copy(void* dst, const void* src, size_t bytes) {
  if (bytes == 0) return ok();
  RETURN_IF_CUDA_ERROR(device_.info().index,
                       cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream_));
  return ok();
}

Status CudaStream::copy_rows(void* dst, size_t dst_stride, const void* src, size_t src_stride,
                             size_t bytes, size_t rows) {
  if (rows <= 1 || bytes == 0) return copy(dst, src, rows * bytes);
  RETURN_IF_CUDA_ERROR(
      device_.info().index,
      cudaMemcpy2DAsync(dst, dst_stride, src, src_stride, bytes, rows, cudaMemcpyDefault, stream_));
  return ok();
}

Status CudaStream::fill(void* dst, int byte, size_t bytes) {
  if (bytes == 0) return ok();
  RETURN_IF_CUDA_ERROR(device_.info().index, cudaMemsetAsync(dst, byte, bytes, stream_));
  return ok();
}

StatusOr<std::unique_ptr<Recording>> CudaStream::record(
    const std::function<Status(Stream&)>& work) {
  const CudaRange range("record");
  const int index = device_.info().index;
  RETURN_IF_CUDA_ERROR(index, cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  const Status issued = work(*this);
  cudaGraph_t graph = nullptr;
  const Status ended =
      cuda_status(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture", index);
  cudaGraphExec_t exec = nullptr;
  Status status = issued.ok() ? ended : issued;
  if (status.ok())
    status = cuda_status(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate", index);
  if (graph) cudaGraphDestroy(graph);
  RETURN_IF_ERROR(status);
  return std::unique_ptr<Recording>(std::make_unique<CudaRecording>(exec));
}

Status CudaStream::replay(const Recording& recording) {
  const CudaRange range("replay");
  RETURN_IF_CUDA_ERROR(
      device_.info().index,
      cudaGraphLaunch(static_cast<const CudaRecording&>(recording).graph(), stream_));
  return ok();
}

Status CudaStream::synchronize() {
  Health& health = device_.health();
  const cudaError_t error =
      poll(health, /*sleeps=*/false, [this] { return cudaStreamQuery(stream_); });
  if (error == cudaErrorNotReady) return health.failure();
  return cuda_status(error, "cudaStreamQuery", device_.info().index);
}

}  // namespace nereid
