#include "comm/shared_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <utility>
#include <vector>

#include "comm/shared_memory.h"
#include "tensor/cpu_device.h"

namespace nereid::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Duration kPatience = std::chrono::seconds(60);
constexpr int64_t kCount = 100'003;

// Runs `work` on a stream of a device of this process.
Status run_here(Communicator& comm, const std::function<Status(Communicator&, Stream&)>& work) {
  const auto device = make_cpu_device({.num_threads = 1}).value();
  const auto stream = device->create_stream().value();
  return stream->submit([&](Stream& s) { return work(comm, s); }).value()->wait();
}

std::vector<float> numbers_of(int rank) {
  std::vector<float> x;
  for (int64_t i = 0; i < kCount; ++i) x.push_back(static_cast<float>(rank * 1000 + i % 997));
  return x;
}

// Sums of three ranks, and a message around the ring.
Status exchange(Communicator& comm, Stream& stream) {
  auto x = numbers_of(comm.rank());
  for (int turn = 0; turn < 20; ++turn) {
    std::vector<float> sum(x.size());
    RETURN_IF_ERROR(comm.all_reduce(x.data(), sum.data(), kCount, DType::kF32, stream));
    for (int64_t i = 0; i < kCount; ++i)
      if (sum[static_cast<size_t>(i)] != static_cast<float>(3000 + 3 * (i % 997)))
        return internal_error("sum {} is {}", i, sum[static_cast<size_t>(i)]);
    RETURN_IF_ERROR(comm.send(x.data(), 4 * x.size(), (comm.rank() + 1) % 3, stream));
    RETURN_IF_ERROR(comm.recv(sum.data(), 4 * x.size(), (comm.rank() + 2) % 3, stream));
    if (sum != numbers_of((comm.rank() + 2) % 3)) return internal_error("other bytes came");
  }
  return comm.barrier(stream);
}

// A child process for each rank, killed at the end.
class Processes {
 public:
  using Work = std::function<Status(Communicator&, Stream&)>;

  explicit Processes(Duration time_limit) : segment_(create_shared_group(3, time_limit).value()) {}
  ~Processes() {
    for (const pid_t child : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }

  // The exit code is 0 if the work's status is `expected`, as text.
  void start(int rank, const Work& work, const std::string& expected = "OK") {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child > 0) return children_.push_back(child);
    auto comm = attach_shared_group(segment_, rank);
    const Status status = comm.ok() ? run_here(**comm, work) : comm.status();
    const bool as_expected = status.ToString() == expected;
    if (!as_expected) std::fprintf(stderr, "rank %d: %s\n", rank, status.ToString().c_str());
    std::_Exit(as_expected ? 0 : 1);
  }
  pid_t operator[](size_t i) const { return children_[i]; }
  // Waits for the end of the oldest child.
  int exit_code() {
    int status = 0;
    ::waitpid(children_.front(), &status, 0);
    children_.erase(children_.begin());
    return status;
  }
  const Descriptor& segment() const { return segment_; }

 private:
  const Descriptor segment_;
  std::vector<pid_t> children_;
};

TEST(SharedGroup, ProcessesExchange) {
  Processes processes(kPatience);
  for (int rank = 0; rank < 3; ++rank) processes.start(rank, exchange);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.exit_code(), 0);
}

Status for_ever(Communicator& comm, Stream& stream) {
  auto x = numbers_of(comm.rank());
  while (true) RETURN_IF_ERROR(comm.all_reduce(x.data(), x.data(), kCount, DType::kF32, stream));
}

// A process without a rank ends the group.
TEST(SharedGroup, AProcessDies) {
  for (int victim = 0; victim < 3; ++victim) {
    Processes processes(kPatience);
    for (int rank = 0; rank < 3; ++rank)
      processes.start(rank, for_ever, "UNAVAILABLE: rank was killed");
    ::kill(processes[static_cast<size_t>(victim)], SIGKILL);
    ASSERT_TRUE(abort_shared_group(processes.segment(), unavailable("rank was killed")).ok());
    for (int rank = 0; rank < 3; ++rank) {
      const int status = processes.exit_code();
      if (rank == victim)
        EXPECT_TRUE(WIFSIGNALED(status));
      else
        EXPECT_EQ(status, 0) << rank;
    }
  }
}

TEST(SharedGroup, AProcessIsSuspended) {
  Processes processes(std::chrono::seconds(1));
  const auto comes_once = [](Communicator& comm, Stream& stream) -> Status {
    RETURN_IF_ERROR(comm.barrier(stream));
    ::raise(SIGSTOP);
    return ok();
  };
  const auto comes_twice = [](Communicator& comm, Stream& stream) -> Status {
    RETURN_IF_ERROR(comm.barrier(stream));
    return comm.recv(nullptr, 0, 1, stream);
  };
  processes.start(0, comes_twice,
                  "DEADLINE_EXCEEDED: rank 0 waits in recv from rank 1: rank 1 did not come within "
                  "1.000 s");
  processes.start(1, comes_once);
  processes.start(2, [](Communicator& comm, Stream& s) { return comm.barrier(s); });
  EXPECT_EQ(processes.exit_code(), 0);
}

TEST(SharedGroup, RefusesWhatIsNoGroup) {
  const auto message = [](const auto& status_or) { return status_or.status().ToString(); };
  EXPECT_THAT(message(create_shared_group(0, kPatience)),
              HasSubstr("num_ranks: 0 is not in [1, 64]"));
  EXPECT_THAT(message(create_shared_group(2, Duration(0))), HasSubstr("time_limit: 0"));
  const Descriptor group = create_shared_group(2, kPatience).value();
  EXPECT_THAT(message(attach_shared_group(group, 2)), HasSubstr("rank: 2 is not in [0, 2)"));
  const auto first = attach_shared_group(group, 1);
  EXPECT_TRUE(first.ok());
  EXPECT_THAT(message(attach_shared_group(group, 1)), HasSubstr("1 of 2 is attached already"));
  const Descriptor zeros = SharedMemory::create(1 << 16).value();
  EXPECT_THAT(message(attach_shared_group(zeros, 0)),
              AllOf(HasSubstr("DATA_LOSS"), HasSubstr("65536 bytes")));
  EXPECT_THAT(message(attach_shared_group(Descriptor(), 0)), HasSubstr("UNAVAILABLE"));
  EXPECT_EQ(abort_shared_group(zeros, cancelled("stop")).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace nereid::comm
