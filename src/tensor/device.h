// The device seam: memory, ordered streams of work, completion. One implementation per kind of
// device; shared code above this line never asks which one it talks to.
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

// Instruction sets of the CPU kernels, in order of preference; each includes the ones before it
// except where noted.
enum class Isa : uint8_t { kGeneric, kAvx2, kAvx512, kAvx512Bf16, kAmx };
std::string_view name_of(Isa isa);

// What kernel selection and memory planning may look at.
struct DeviceInfo {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;            // cuda:N
  std::string name;         // marketing name of the processor
  Isa isa = Isa::kGeneric;  // CPU: best usable one (or the forced one)
  bool has_amx = false;     // tiles of bf16 and i8, permission granted by the kernel
  bool has_avx512_bf16 = false;
  bool has_avx512_vnni = false;  // with has_avx512
  bool has_avx512 = false;       // F, BW, DQ, VL
  bool has_avx2 = false;         // AVX2, FMA, F16C
  int sm = 0;                    // CUDA: 90 for Hopper
  int num_units = 1;             // CPU: compute threads; CUDA: multiprocessors
  size_t memory_bytes = 0;       // total
  size_t free_bytes = 0;         // when the device was opened
  size_t workspace_bytes = 0;    // scratch memory that each stream has for its kernels

  std::string id() const;  // "cpu" | "cuda:0"
};

class Device;

// Memory of a device (or page-locked host memory for it), released on destruction.
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

// Completion of one submitted piece of work.
class Event {
 public:
  virtual ~Event() = default;
  // Blocks until the work is done; its status. May be called once or more. Where the device makes
  // no progress for its timeout (Health), it hangs from then on, and this and every later wait
  // return its failure at once: the work may go on, so nothing that it uses may be freed.
  virtual Status wait() = 0;
  virtual bool done() = 0;
};

// Issued work that can be issued again at once.
class Recording {
 public:
  virtual ~Recording() = default;
};

// An ordered queue of work on a device. Kernels get a Stream& and issue their work on it.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual const Device& device() const = 0;

  // Runs `work` in order after everything submitted before. CPU: on the stream's own thread,
  // kernels run synchronously inside. CUDA: inline on the caller's thread, kernels enqueue. The
  // event covers all that `work` issued. A device that has failed refuses with its failure.
  virtual StatusOr<std::unique_ptr<Event>> submit(std::function<Status(Stream&)> work) = 0;
  // The same for work that comes again and again: `used`, an event that submit() of this stream
  // gave, may become the new one's. It was waited for, and no stream was told to wait for it; null
  // will do.
  virtual StatusOr<std::unique_ptr<Event>> submit(std::function<Status(Stream&)> work,
                                                  std::unique_ptr<Event> /*used*/) {
    return submit(std::move(work));
  }

  // What is submitted from now on begins after all that `event` covers, of any stream of this
  // device, whatever its status. Not inside submitted work.
  virtual Status wait(const Event& event) = 0;

  // Only inside submitted work. `dst`, `src`: device memory or memory from allocate_host().
  virtual Status copy(void* dst, const void* src, size_t bytes) = 0;
  virtual Status fill(void* dst, int byte, size_t bytes) = 0;
  // `rows` pieces of `bytes` each, `dst_stride` and `src_stride` bytes apart: one copy where the
  // device can. Strides are not less than `bytes`; pieces of dst are not among those of src.
  virtual Status copy_rows(void* dst, size_t dst_stride, const void* src, size_t src_stride,
                           size_t bytes, size_t rows) {
    for (size_t i = 0; i < rows; ++i)
      RETURN_IF_ERROR(copy(static_cast<std::byte*>(dst) + i * dst_stride,
                           static_cast<const std::byte*>(src) + i * src_stride, bytes));
    return ok();
  }

  // Only inside submitted work: keeps what `work` would issue, with the addresses and sizes it has
  // now, for replay(); nothing runs. `work` must have run before, so that kernels have what they
  // make on first use, and may not wait. Null on devices that gain nothing from it.
  virtual StatusOr<std::unique_ptr<Recording>> record(
      const std::function<Status(Stream&)>& /*work*/) {
    return std::unique_ptr<Recording>();
  }
  // Only inside submitted work. The recording must outlive the work.
  virtual Status replay(const Recording&) { return ok(); }

  // Only inside submitted work: waits until all that was issued so far is done, for measurements.
  // Devices whose work runs synchronously have nothing to do.
  virtual Status synchronize() { return ok(); }

  // What kernels of this device need: CPU ThreadPool*, CUDA cudaStream_t.
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
      size_t bytes) = 0;  // host memory that kernels may use too, and copies take at full speed
  // Makes read-only host bytes usable by kernels: CPU returns them as they are (no copy, `owner`
  // unset), CUDA uploads.
  virtual StatusOr<Buffer> upload(const void* host, size_t bytes) = 0;
  virtual StatusOr<std::unique_ptr<Stream>> create_stream() = 0;
  // One for copies and fills alone: it has no scratch memory for kernels.
  virtual StatusOr<std::unique_ptr<Stream>> create_copy_stream() { return create_stream(); }
  virtual size_t free_bytes() const = 0;

  // Any thread.
  virtual Health& health() { return health_; }
  const Health& health() const { return const_cast<Device*>(this)->health(); }

 private:
  Health health_;
};

}  // namespace nereid
