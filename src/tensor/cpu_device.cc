// CPU device: host memory, streams and events.
#include "tensor/cpu_device.h"

#include <sys/mman.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "base/copy_bytes.h"
#include "base/queue.h"
#include "base/round_up.h"
#include "tensor/cpu_probe.h"
#include "tensor/thread_pool.h"

namespace nereid {
namespace {

constexpr size_t kSmallAlignment = 256;
constexpr size_t kHugePage = size_t{2} << 20;
// Minimum of available memory that an allocation leaves to the system.
constexpr size_t kReserve = size_t{64} << 20;

// Zeroed, 2 MiB aligned, with huge pages if the system allows them.
StatusOr<Buffer> allocate_large(size_t bytes) {
  const size_t length = round_up(bytes, kHugePage);
  void* const raw =
      mmap(nullptr, length + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED)
    return resource_exhausted("cannot map {} bytes of memory: {}", length, std::strerror(errno));
  const auto start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = round_up(start, kHugePage);
  const size_t before = aligned - start;
  if (before > 0) munmap(raw, before);
  if (before < kHugePage) munmap(reinterpret_cast<void*>(aligned + length), kHugePage - before);
  void* const data = reinterpret_cast<void*>(aligned);
  madvise(data, length, MADV_HUGEPAGE);  // a hint
  return Buffer(data, bytes, [length](void* p) { munmap(p, length); });
}

StatusOr<Buffer> allocate_host_memory(size_t bytes) {
  if (bytes == 0) return Buffer();
  if (bytes >= kHugePage) {
    const size_t available = host_memory().free_bytes;
    if (available < kReserve || bytes > available - kReserve)
      return resource_exhausted(
          "cpu: {} bytes ({:.1f} GiB) asked for, {} bytes ({:.1f} GiB) of memory available", bytes,
          static_cast<double>(bytes) / (1 << 30), available,
          static_cast<double>(available) / (1 << 30));
    return allocate_large(bytes);
  }
  void* const data = std::aligned_alloc(kSmallAlignment, round_up(bytes, kSmallAlignment));
  if (!data) return resource_exhausted("cpu: out of memory for {} bytes", bytes);
  std::memset(data, 0, bytes);
  return Buffer(data, bytes, [](void* p) { std::free(p); });
}

// Shared by event and stream, which may be destroyed in any order.
class Completion {
 public:
  void set(Status status) {
    {
      std::lock_guard lock(mutex_);
      status_ = std::move(status);
    }
    ready_.notify_all();
  }
  void reset() {
    std::lock_guard lock(mutex_);
    status_.reset();
  }
  Status wait(Health& health) {
    std::unique_lock lock(mutex_);
    const auto is_set = [&] { return status_.has_value(); };
    for (Stall stall(health); !ready_.wait_for(lock, stall.slice(), is_set);) {
      if (!health.is_hung() && !stall.over()) continue;
      health.hang(stall.error());
      return health.failure();
    }
    // A new Status: thread checkers cannot see the reference counting of a shared one.
    return status_->ok() ? ok() : Status(status_->code(), status_->message());
  }
  bool done() {
    std::lock_guard lock(mutex_);
    return status_.has_value();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::optional<Status> status_;
};

class CpuEvent : public Event {
 public:
  CpuEvent(std::shared_ptr<Completion> completion, Health& health)
      : completion_(std::move(completion)), health_(health) {}
  Status wait() override { return completion_->wait(health_); }
  bool done() override { return completion_->done(); }
  const std::shared_ptr<Completion>& completion() const { return completion_; }

 private:
  std::shared_ptr<Completion> completion_;
  Health& health_;
};

class CpuStream : public Stream {
 public:
  CpuStream(Device& device, ThreadPool& pool)
      : device_(device), health_(device.health()), pool_(pool), thread_([this] { work(); }) {}
  ~CpuStream() override {
    tasks_.close();
    thread_.join();
  }

  const Device& device() const override { return device_; }

  StatusOr<std::unique_ptr<Event>> submit(std::function<Status(Stream&)> work) override {
    return submit(std::move(work), nullptr);
  }
  StatusOr<std::unique_ptr<Event>> submit(std::function<Status(Stream&)> work,
                                          std::unique_ptr<Event> event) override {
    RETURN_IF_ERROR(health_.failure());
    if (event) {
      static_cast<CpuEvent&>(*event).completion()->reset();
    } else {
      event = std::make_unique<CpuEvent>(std::make_shared<Completion>(), health_);
    }
    if (!tasks_.push({std::move(work), static_cast<CpuEvent&>(*event).completion()}))
      return unavailable("cpu: the stream is closed");
    return event;
  }

  Status wait(const Event& event) override {
    auto awaited = static_cast<const CpuEvent&>(event).completion();
    const auto sleep = [this, awaited = std::move(awaited)](Stream&) {
      awaited->wait(health_).IgnoreError();
      return ok();
    };
    return submit(sleep).status();
  }

  Status copy(void* dst, const void* src, size_t bytes) override {
    copy_bytes(dst, src, bytes);
    return ok();
  }

  Status fill(void* dst, int byte, size_t bytes) override {
    if (bytes > 0) std::memset(dst, byte, bytes);
    return ok();
  }

  void* native() override { return &pool_; }

 private:
  struct Task {
    std::function<Status(Stream&)> work;
    std::shared_ptr<Completion> completion;
  };

  void work() {
    while (std::optional<Task> task = tasks_.take()) {
      Status status = health_.failure();
      try {
        if (status.ok()) status = task->work(*this);
      } catch (const std::exception& e) {
        status = internal_error("cpu: work ended with an exception: {}", e.what());
      }
      health_.made_progress();
      task->work = nullptr;  // captures are destroyed before completion is signalled
      task->completion->set(std::move(status));
    }
  }

  const Device& device_;
  Health& health_;
  ThreadPool& pool_;
  Queue<Task> tasks_;
  std::thread thread_;  // last member: uses the others
};

class CpuDevice : public Device {
 public:
  explicit CpuDevice(DeviceInfo info) : info_(std::move(info)), pool_(info_.num_units) {
    health().set_hooks([this] { return pool_.progress(); }, nullptr);
  }

  const DeviceInfo& info() const override { return info_; }
  StatusOr<Buffer> allocate(size_t bytes) override { return allocate_host_memory(bytes); }
  StatusOr<Buffer> allocate_host(size_t bytes) override { return allocate_host_memory(bytes); }
  StatusOr<Buffer> upload(const void* host, size_t bytes) override {
    return Buffer(const_cast<void*>(host), bytes, nullptr);
  }
  StatusOr<std::unique_ptr<Stream>> create_stream() override {
    return std::make_unique<CpuStream>(*this, pool_);
  }
  size_t free_bytes() const override { return host_memory().free_bytes; }

 private:
  const DeviceInfo info_;
  ThreadPool pool_;
};

}  // namespace

StatusOr<std::unique_ptr<Device>> make_cpu_device(const CpuOptions& options) {
  if (options.num_threads < 0 || options.num_threads > kMaxCpuThreads)
    return invalid_argument("cpu threads: {} is not in [0, {}] (0 = one per physical core)",
                            options.num_threads, kMaxCpuThreads);
  DeviceInfo info;
  ASSIGN_OR_RETURN(info.isa, choose_isa(options.isa));
  info.kind = DeviceKind::kCpu;
  info.name = processor_name();
  info.has_avx2 = info.isa >= Isa::kAvx2;
  info.has_avx512 = info.isa >= Isa::kAvx512;
  info.has_avx512_vnni = info.isa >= Isa::kAvx512 && has_avx512_vnni();
  info.has_avx512_bf16 = info.isa >= Isa::kAvx512Bf16;
  info.has_amx = info.isa >= Isa::kAmx;
  info.num_units = options.num_threads > 0 ? options.num_threads : num_usable_cores();
  const HostMemory memory = host_memory();
  info.memory_bytes = memory.total_bytes;
  info.free_bytes = memory.free_bytes;
  return std::make_unique<CpuDevice>(std::move(info));
}

}  // namespace nereid
