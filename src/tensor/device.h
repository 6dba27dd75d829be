// Device interface: memory, ordered streams of work, completion. One implementation per kind of
// device; callers do not depend on the kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "tensor/health.h"

namespace nereid {

enum class DeviceKind : uint8_t { kCpu, kCuda };
std::string_view name_of(DeviceKind kind);  // "cpu" | "cuda"

// CPU instruction sets in ascending order; each includes the previous ones except where noted.
enum class Isa : uint8_t { kGeneric, kAvx2, kAvx512, kAvx512Bf16, kAmx };
std::string_view name_of(Isa isa);

// Device properties for kernel selection and memory planning.
struct DeviceInfo {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;            // cuda:N
  std::string name;         // marketing name of the processor
  Isa isa = Isa::kGeneric;  // CPU: best usable, or forced
  bool has_amx = false;     // bf16 and i8 tiles, permission granted
  bool has_avx512_bf16 = false;
  bool has_avx512_vnni = false;  // with has_avx512
  bool has_avx512 = false;       // F, BW, DQ, VL
  bool has_avx2 = false;         // AVX2, FMA, F16C
  int sm = 0;                    // CUDA: 90 for Hopper
  int num_units = 1;             // CPU: compute threads; CUDA: multiprocessors
  size_t memory_bytes = 0;       // total
  size_t free_bytes = 0;         // when the device was opened
  size_t workspace_bytes = 0;    // kernel scratch memory per stream

  std::string id() const;  // "cpu" | "cuda:0"
};

class Device;

// Device memory, or page-locked host memory; released on destruction.
class Buffer {
 public:
  using Release = std::function<void(void*)>;
  Buffer() = default;
  Buffer(void* data, size_t bytes, Release release)
      : data_(data), bytes_(bytes), release_(std::move(release)) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer() {
    if (data_ && release_) release_(data_);
  }
  void* data() const { return data_; }
  std::byte* bytes() const { return static_cast<std::byte*>(data_); }
  size_t size() const { return bytes_; }

 private:
  void swap(Buffer& other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
  }
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Release release_;
};

// Completion of submitted work.
class Event {
 public:
  virtual ~Event() = default;
  // Blocks until the work is done; returns its status; repeatable. Without progress for the
  // device's timeout (Health) the device counts as hung: this and all later waits return the
  // failure at once. The work may go on, so memory that it uses must not be freed.
  virtual Status wait() = 0;
  virtual bool done() = 0;
};

// Recorded work that can be replayed (CUDA graph).
class Recording {
 public:
  virtual ~Recording() = default;
};

// An ordered queue of work. Kernels issue their work to a Stream&.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual const Device& device() const = 0;

  // Runs `work` after all earlier submissions. CPU: on the stream's thread, kernels run
  // synchronously; CUDA: on the caller's thread, kernels are enqueued. The event covers everything
  // that `work` issued. A failed device returns its failure.
  virtual StatusOr<std::unique_ptr<Event>> submit(std::function<Status(Stream&)> work) = 0;
  // The same with event reuse: `used`, an event of this stream's submit() that was waited for and
  // on which no stream waits, or null.
  virtual StatusOr<std::unique_ptr<Event>> submit(std::function<Status(Stream&)> work,
                                                  std::unique_ptr<Event> /*used*/) {
    return submit(std::move(work));
  }

  // Later submissions start after everything `event` (of any stream of this device) covers,
  // whatever its status. Not inside submitted work.
  virtual Status wait(const Event& event) = 0;

  // Inside submitted work only. `dst`, `src`: device memory, or memory of allocate_host().
  virtual Status copy(void* dst, const void* src, size_t bytes) = 0;
  virtual Status fill(void* dst, int byte, size_t bytes) = 0;
  // Copies `rows` pieces of `bytes` with these strides, in one copy if the device can. Strides >=
  // `bytes`; dst and src must not overlap.
  virtual Status copy_rows(void* dst, size_t dst_stride, const void* src, size_t src_stride,
                           size_t bytes, size_t rows) {
    for (size_t i = 0; i < rows; ++i)
      RETURN_IF_ERROR(copy(static_cast<std::byte*>(dst) + i * dst_stride,
                           static_cast<const std::byte*>(src) + i * src_stride, bytes));
    return ok();
  }

  // Inside submitted work only: records what `work` issues, with its present addresses and sizes,
  // for replay(); runs nothing. `work` must have run before (first-use allocations) and must not
  // wait. Null: the device does not record.
  virtual StatusOr<std::unique_ptr<Recording>> record(
      const std::function<Status(Stream&)>& /*work*/) {
    return std::unique_ptr<Recording>();
  }
  // Inside submitted work only. The recording must outlive the work.
  virtual Status replay(const Recording&) { return ok(); }

  // For measurements, inside submitted work only: waits for issued work. No-op if synchronous.
  virtual Status synchronize() { return ok(); }

  // Native handle for kernels: CPU ThreadPool*, CUDA cudaStream_t.
  virtual void* native() = 0;
};

class Device {
 public:
  Device() : health_([this] { return "device " + info().id(); }) {}
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual StatusOr<Buffer> allocate(
      size_t bytes) = 0;  // 256-byte aligned; ResourceExhausted with the numbers
  virtual StatusOr<Buffer> allocate_host(
      size_t bytes) = 0;  // host memory that kernels can access, fast for copies
  // Makes read-only host bytes usable by kernels: CPU: no copy, `owner` unset; CUDA: uploaded.
  virtual StatusOr<Buffer> upload(const void* host, size_t bytes) = 0;
  virtual StatusOr<std::unique_ptr<Stream>> create_stream() = 0;
  // A stream for copies and fills only, without kernel scratch memory.
  virtual StatusOr<std::unique_ptr<Stream>> create_copy_stream() { return create_stream(); }
  virtual size_t free_bytes() const = 0;

  // Thread-safe.
  virtual Health& health() { return health_; }
  const Health& health() const { return const_cast<Device*>(this)->health(); }

 private:
  Health health_;
};

}  // namespace nereid
