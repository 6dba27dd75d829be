#include "comm/socket_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/thread_group.h"
#include "tensor/cpu_device.h"

namespace nereid::comm {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

using Work = std::function<Status(Communicator&, Stream&)>;

std::vector<std::unique_ptr<Communicator>> make_socket_group(size_t size) {
  std::vector<std::vector<Descriptor>> sockets(size);
  for (auto& row : sockets) row.resize(size);
  for (size_t a = 0; a < size; ++a) {
    for (size_t b = a + 1; b < size; ++b) {
      int ends[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      sockets[a][b] = Descriptor(ends[0]);
      sockets[b][a] = Descriptor(ends[1]);
    }
  }
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (size_t r = 0; r < size; ++r)
    ranks.push_back(attach_socket_group(static_cast<int>(r), std::move(sockets[r])).value());
  return ranks;
}

// Runs `work` on a thread and a device of each rank that is there.
std::vector<Status> run(const std::vector<std::unique_ptr<Communicator>>& ranks, const Work& work) {
  std::vector<Status> statuses(ranks.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r) {
    threads.emplace_back([&, r] {
      const auto device = make_cpu_device({.num_threads = 1}).value();
      const auto stream = device->create_stream().value();
      statuses[r] = stream->submit([&](Stream& s) { return work(*ranks[r], s); }).value()->wait();
    });
  }
  for (auto& thread : threads) thread.join();
  return statuses;
}

// The results of all collectives for counts below and above a staging buffer.
StatusOr<std::vector<float>> results_of(Communicator& comm, Stream& stream) {
  std::vector<float> all;
  const auto keep = [&](const std::vector<float>& x) { all.insert(all.end(), x.begin(), x.end()); };
  const int64_t size = comm.size();
  const int next = (comm.rank() + 1) % comm.size();
  const int before = (comm.rank() + comm.size() - 1) % comm.size();
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{999}, int64_t{300'001}}) {
    std::vector<float> x(static_cast<size_t>(count * size));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i % 1013) * 0.37F / static_cast<float>(comm.rank() + 3);
    std::vector<float> out(x.size()), columns(x.size());
    RETURN_IF_ERROR(comm.all_reduce(x.data(), out.data(), count, DType::kF32, stream));
    keep(out);
    RETURN_IF_ERROR(comm.all_gather(x.data(), out.data(), count, DType::kF32, stream));
    keep(out);
    RETURN_IF_ERROR(comm.reduce_scatter(x.data(), out.data(), count, DType::kF32, stream));
    keep(out);
    const View part{x.data(), DType::kF32, 1, count, count};
    const View whole{columns.data(), DType::kF32, 1, count * size, count * size};
    RETURN_IF_ERROR(comm.gather_columns(part, 1, whole, stream));
    keep(columns);
    RETURN_IF_ERROR(comm.barrier(stream));
    // Around the ring, from rank 0 on.
    const size_t bytes = x.size() * sizeof(float);
    if (comm.rank() == 0) RETURN_IF_ERROR(comm.send(x.data(), bytes, next, stream));
    RETURN_IF_ERROR(comm.recv(out.data(), bytes, before, stream));
    if (comm.rank() != 0) RETURN_IF_ERROR(comm.send(out.data(), bytes, next, stream));
    keep(out);
    RETURN_IF_ERROR(comm.broadcast(x.data(), bytes, 1, stream));
    keep(x);
  }
  return all;
}

std::vector<std::vector<float>> results_of(
    const std::vector<std::unique_ptr<Communicator>>& ranks) {
  std::vector<std::vector<float>> all(ranks.size());
  const auto statuses = run(ranks, [&](Communicator& comm, Stream& stream) -> Status {
    ASSIGN_OR_RETURN(all[static_cast<size_t>(comm.rank())], results_of(comm, stream));
    return ok();
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  return all;
}

TEST(SocketGroup, GivesTheBitsOfAGroupInMemory) {
  for (const size_t size : {size_t{2}, size_t{3}, size_t{4}}) {
    const auto expected =
        results_of(make_thread_group(static_cast<int>(size), std::chrono::seconds(60)).value());
    const auto got = results_of(make_socket_group(size));
    ASSERT_FALSE(expected[0].empty());
    EXPECT_TRUE(got == expected) << size << " ranks";
  }
}

TEST(SocketGroup, ARankThatLeavesEndsTheGroup) {
  auto ranks = make_socket_group(3);
  ranks[2].reset();
  ranks.pop_back();
  const auto statuses =
      run(ranks, [](Communicator& comm, Stream& stream) { return comm.barrier(stream); });
  for (const Status& status : statuses)
    EXPECT_THAT(std::string(status.message()), HasSubstr("has closed its connection"));
}

TEST(SocketGroup, AnAbortWakesWaitingRanks) {
  const auto ranks = make_socket_group(2);
  const auto statuses = run(ranks, [](Communicator& comm, Stream& stream) {
    if (comm.rank() == 0) return comm.barrier(stream);
    comm.abort(unavailable("rank 1 stops"));
    return comm.failure();
  });
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("rank 1 has closed its connection"));
  EXPECT_EQ(statuses[1].message(), "rank 1 stops");
  EXPECT_FALSE(ranks[0]->failure().ok());
}

TEST(SocketGroup, DifferentCallsEndTheGroup) {
  const auto ranks = make_socket_group(2);
  float x[4] = {};
  const auto statuses = run(ranks, [&](Communicator& comm, Stream& stream) {
    if (comm.rank() == 0) return comm.barrier(stream);
    return comm.broadcast(x, sizeof(x), 1, stream);
  });
  EXPECT_THAT(
      fmt::format("{} {}", message(statuses[0]), message(statuses[1])),
      AnyOf(HasSubstr("rank 1 makes another call"), HasSubstr("rank 0 makes another call")));
}

TEST(SocketGroup, EveryOtherRankNeedsASocket) {
  std::vector<Descriptor> none(2);
  EXPECT_EQ(attach_socket_group(0, std::move(none)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace nereid::comm
