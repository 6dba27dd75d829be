#include "tensor/cpu_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "tensor/cpu_probe.h"
#include "tensor/thread_pool.h"

namespace nereid {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Device> open_cpu(int threads = 2, std::string isa = "") {
  auto device = make_cpu_device({threads, std::move(isa)});
  NEREID_CHECK(device.ok());
  return *std::move(device);
}

// Kernels, golden models and exactness are tested with the processor's instruction sets.
TEST(CpuProbe, EveryInstructionSetIsTested) {
  const auto usable = usable_isas();
  std::string missing;
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx})
    if (!std::ranges::count(usable, isa)) missing += " " + std::string(name_of(isa));
  if (!missing.empty()) GTEST_SKIP() << "this processor has not:" << missing;
}

TEST(CpuProbe, GenericIsAlwaysUsableAndTheListIsOrdered) {
  const auto isas = usable_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::kGeneric);
  EXPECT_TRUE(std::is_sorted(isas.begin(), isas.end()));
}

TEST(CpuProbe, LimitsAreSane) {
  EXPECT_GE(num_usable_cores(), 1);
  EXPECT_LE(num_usable_cores(), static_cast<int>(std::thread::hardware_concurrency()));
  const HostMemory memory = host_memory();
  EXPECT_GT(memory.total_bytes, size_t{16} << 20);
  EXPECT_LE(memory.free_bytes, memory.total_bytes);
  EXPECT_FALSE(processor_name().empty());
}

// read() calls of this process so far.
int64_t num_reads() {
  const auto text = read_file("/proc/self/io");
  const size_t at = text.ok() ? text->find("syscr: ") : std::string::npos;
  return at == std::string::npos ? -1 : std::stoll(text->substr(at + 7));
}

TEST(CpuDevice, SmallAllocationsReadNoFiles) {
  if (num_reads() < 0) GTEST_SKIP() << "/proc/self/io does not count";
  const auto device = open_cpu(1);
  const int64_t before = num_reads();
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(device->allocate(1000).ok());
  EXPECT_LT(num_reads() - before, 100);
}

TEST(CpuDevice, RefusesWhatItCannotDo) {
  EXPECT_THAT(make_cpu_device({-1, ""}).status().ToString(), HasSubstr("cpu threads: -1"));
  EXPECT_THAT(make_cpu_device({5000, ""}).status().ToString(), HasSubstr("[0, 1024]"));
  const auto refused = make_cpu_device({1, "sse9"}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.ToString(), HasSubstr("'sse9'"));
  EXPECT_THAT(refused.ToString(), HasSubstr("usable: generic"));
  EXPECT_EQ(make_cpu_device({1, "amx"}).ok(), usable_isas().back() == Isa::kAmx);
}

TEST(CpuDevice, AStreamWaitsForWorkOfAnother) {
  const auto device = open_cpu(1);
  const auto early = device->create_stream().value(), late = device->create_copy_stream().value();
  std::atomic<bool> go = false;
  std::atomic<int> num_done = 0;
  auto first = early->submit([&](Stream&) -> Status {
    while (!go) std::this_thread::yield();
    ++num_done;
    return internal_error("failed work is done too");
  });
  auto before = late->submit([&](Stream&) { return ok(); });
  ASSERT_TRUE(late->wait(**first).ok());
  int seen = -1;
  auto second = late->submit([&](Stream&) {
    seen = num_done;
    return ok();
  });
  EXPECT_TRUE((*before)->wait().ok()) << "what was submitted before the wait goes on";
  EXPECT_FALSE((*second)->done());
  first->reset();  // the waiter keeps its state alive
  go = true;
  EXPECT_TRUE((*second)->wait().ok());
  EXPECT_EQ(seen, 1);
}

TEST(CpuDevice, AFailedOneRefusesWorkWithItsFirstError) {
  const auto device = open_cpu(1);
  const auto stream = device->create_stream().value();
  EXPECT_TRUE(device->health().failure().ok());
  bool ran = false;
  auto first = stream->submit([&](Stream&) {
    device->health().fail(internal_error("bad memory"));
    device->health().fail(internal_error("other"));
    return ok();
  });
  EXPECT_TRUE((*first)->wait().ok());
  const Status expected = unavailable("device cpu has failed: bad memory");
  EXPECT_EQ(device->health().failure(), expected);
  EXPECT_EQ(stream->submit([&](Stream&) { return ran = true, ok(); }).status(), expected);
  EXPECT_FALSE(ran);
}

TEST(CpuDevice, WorkThatWaitsBehindAFailureDoesNotRun) {
  const auto device = open_cpu(1);
  const auto stream = device->create_stream().value();
  std::atomic<bool> submitted = false, ran = false;
  auto first = stream->submit([&](Stream&) -> Status {
    while (!submitted) std::this_thread::yield();
    device->health().fail(internal_error("bad memory"));
    return internal_error("bad memory");
  });
  auto second = stream->submit([&](Stream&) { return ran = true, ok(); });
  submitted = true;
  EXPECT_EQ((*first)->wait(), internal_error("bad memory"));
  EXPECT_EQ((*second)->wait(), device->health().failure());
  EXPECT_FALSE(ran);
}

TEST(CpuDevice, ForcedIsaHidesTheBetterOnes) {
  for (const Isa isa : usable_isas()) {
    const auto device = open_cpu(1, std::string(name_of(isa)));
    EXPECT_EQ(device->info().isa, isa);
    EXPECT_EQ(device->info().has_avx2, isa >= Isa::kAvx2);
    EXPECT_EQ(device->info().has_avx512, isa >= Isa::kAvx512);
    EXPECT_EQ(device->info().has_avx512_bf16, isa >= Isa::kAvx512Bf16);
    EXPECT_EQ(device->info().has_amx, isa >= Isa::kAmx);
    EXPECT_EQ(device->info().id(), "cpu");
  }
}

TEST(CpuDevice, MemoryIsAlignedZeroedAndBounded) {
  const auto device = open_cpu();
  for (const size_t bytes : {size_t{1}, size_t{1000}, size_t{3} << 20}) {
    auto buffer = device->allocate(bytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 256, 0u);
    EXPECT_EQ(buffer->size(), bytes);
    EXPECT_TRUE(std::all_of(buffer->bytes(), buffer->bytes() + bytes,
                            [](std::byte b) { return b == std::byte{0}; }));
    std::memset(buffer->data(), 1, bytes);
  }
  const auto refused = device->allocate(size_t{1} << 50).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.ToString(), HasSubstr("1125899906842624 bytes"));
  EXPECT_FALSE(device->allocate(~size_t{0} - 5).ok());
  EXPECT_TRUE(device->allocate(0).ok());
}

TEST(CpuDevice, UploadDoesNotCopy) {
  const auto device = open_cpu();
  const int value = 7;
  auto buffer = device->upload(&value, sizeof(value));
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->data(), &value);
}

TEST(CpuStream, RunsInOrderOnItsOwnThread) {
  const auto device = open_cpu();
  auto stream = *device->create_stream();
  EXPECT_EQ(&stream->device(), device.get());
  EXPECT_EQ(static_cast<ThreadPool*>(stream->native())->num_threads(), 2);
  std::vector<int> order;
  std::vector<std::unique_ptr<Event>> events;
  const auto caller = std::this_thread::get_id();
  for (int i = 0; i < 20; ++i)
    events.push_back(*stream->submit([&, i](Stream&) {
      EXPECT_NE(std::this_thread::get_id(), caller);
      order.push_back(i);
      return ok();
    }));
  EXPECT_TRUE(events.back()->wait().ok());
  EXPECT_TRUE(events.back()->wait().ok());
  for (auto& event : events) EXPECT_TRUE(event->done());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(order[i], i);
}

TEST(CpuStream, ReportsErrorsAndGoesOn) {
  const auto device = open_cpu();
  auto stream = *device->create_stream();
  auto bad = *stream->submit([](Stream&) { return invalid_argument("no {}", 1); });
  auto thrown = *stream->submit([](Stream&) -> Status { throw std::runtime_error("oops"); });
  auto good = *stream->submit([](Stream&) { return ok(); });
  EXPECT_EQ(message(bad->wait()), "no 1");
  EXPECT_THAT(thrown->wait().ToString(), HasSubstr("oops"));
  EXPECT_TRUE(good->wait().ok());
}

TEST(CpuStream, CopyAndFill) {
  const auto device = open_cpu();
  auto stream = *device->create_stream();
  auto a = *device->allocate(64), b = *device->allocate_host(64);
  auto event = *stream->submit([&](Stream& s) {
    RETURN_IF_ERROR(s.fill(a.data(), 5, 64));
    return s.copy(b.data(), a.data(), 64);
  });
  ASSERT_TRUE(event->wait().ok());
  EXPECT_EQ(b.bytes()[63], std::byte{5});
}

TEST(CpuStream, DrainsWhenClosed) {
  const auto device = open_cpu();
  std::atomic<int> ran = 0;
  std::latch closing(1);
  {
    auto stream = *device->create_stream();
    for (int i = 0; i < 5; ++i)
      ASSERT_TRUE(stream
                      ->submit([&](Stream&) {
                        closing.wait();
                        ++ran;
                        return ok();
                      })
                      .ok());
    closing.count_down();
  }
  EXPECT_EQ(ran, 5);
}

// Work that never ends, on the stream or on a pool thread.
TEST(CpuDevice, AWaitForWorkThatHangsEnds) {
  for (const int num_threads : {1, 2}) {
    std::promise<void> release;
    const std::shared_future<void> released = release.get_future().share();
    std::atomic<int> num_begun = 0;
    auto device = make_cpu_device({.num_threads = num_threads}).value();
    auto stream = device->create_stream().value();
    device->health().set_timeout(std::chrono::milliseconds(40));
    auto hangs = stream->submit([&](Stream& s) {
      static_cast<ThreadPool*>(s.native())
          ->parallel_for(num_threads, 1, [&](int64_t, int64_t, int thread) {
            ++num_begun;
            while (num_begun < num_threads) std::this_thread::yield();
            if (thread == num_threads - 1) released.wait();
          });
      return ok();
    });
    auto second = stream->submit([](Stream&) { return ok(); });
    const Status expected = unavailable(
        "device cpu has failed: it has made no progress for 0.04 s (device_timeout_secs)");
    EXPECT_EQ((*hangs)->wait(), expected);
    EXPECT_EQ((*second)->wait(), expected);
    EXPECT_TRUE(device->health().is_hung());
    EXPECT_EQ(stream->submit([](Stream&) { return ok(); }).status(), expected);
    release.set_value();
  }
}

TEST(CpuDevice, WorkThatMovesIsWaitedFor) {
  auto device = make_cpu_device({.num_threads = 1}).value();
  auto stream = device->create_stream().value();
  const uint64_t before = device->health().progress();
  auto event = stream->submit([&](Stream& s) {
    static_cast<ThreadPool*>(s.native())->parallel_for(8, 1, [](int64_t, int64_t, int) {});
    return ok();
  });
  EXPECT_TRUE((*event)->wait().ok());
  EXPECT_EQ(device->health().progress() - before, 9u);  // its pieces, and itself
}

}  // namespace
}  // namespace nereid
