#include "comm/thread_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "tensor/cpu_device.h"

namespace nereid::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Duration kLong = std::chrono::seconds(60);

// Ranks on streams of one CPU device, one thread each.
class Ranks {
 public:
  using Work = std::function<Status(Communicator&, Stream&)>;

  explicit Ranks(int size, Duration time_limit = kLong)
      : device_(make_cpu_device({.num_threads = 1}).value()),
        ranks_(make_thread_group(size, time_limit).value()) {
    for (int i = 0; i < size; ++i) streams_.push_back(device_->create_stream().value());
  }

  // Runs `work` on all ranks in parallel; returns their statuses.
  std::vector<Status> run(const Work& work) {
    std::vector<std::unique_ptr<Event>> events;
    for (size_t i = 0; i < ranks_.size(); ++i)
      if (ranks_[i])
        events.push_back(streams_[i]
                             ->submit([&, i](Stream& stream) { return work(*ranks_[i], stream); })
                             .value());
    std::vector<Status> statuses;
    for (auto& event : events) statuses.push_back(event->wait());
    return statuses;
  }
  void run_ok(const Work& work) {
    for (const Status& status : run(work)) EXPECT_TRUE(status.ok()) << status;
  }
  void leave(int rank) { ranks_[static_cast<size_t>(rank)].reset(); }
  Communicator& operator[](int rank) { return *ranks_[static_cast<size_t>(rank)]; }

 private:
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

// Element i of a rank's input; magnitudes differ widely, so that sums depend on their order.
float value(int rank, int64_t i) {
  const auto x = static_cast<uint64_t>(rank * 1000003 + i) * 0x9E3779B97F4A7C15u;
  const auto exponent = static_cast<int>(x >> 40 & 15) - 8;
  return std::ldexp(static_cast<float>(static_cast<int32_t>(x >> 8 & 0xffff) - 32768), exponent);
}

template <class T>
T element(float x) {
  if constexpr (std::is_same_v<T, float>)
    return x;
  else
    return to_bf16(x);
}
template <class T>
constexpr DType kType = std::is_same_v<T, float> ? DType::kF32 : DType::kBF16;

float as_float(float x) { return x; }
float as_float(BF16 x) { return to_float(x); }

template <class T>
std::vector<T> input(int rank, int64_t count) {
  std::vector<T> in;
  for (int64_t i = 0; i < count; ++i) in.push_back(element<T>(value(rank, i)));
  return in;
}

// Reference: element i of the sum over ranks [lo, lo + n).
template <class T>
float tree(int lo, int n, int64_t i) {
  if (n == 1) return as_float(element<T>(value(lo, i)));
  int half = 1;
  while (half * 2 < n) half *= 2;
  return tree<T>(lo, half, i) + tree<T>(lo + half, n - half, i);
}

template <class T>
std::vector<T> sum(int size, int64_t count) {
  std::vector<T> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(element<T>(tree<T>(0, size, i)));
  return out;
}

template <class T>
bool same(const std::vector<T>& a, const T* b) {
  return a.empty() || std::memcmp(a.data(), b, a.size() * sizeof(T)) == 0;
}

// The last ones are summed by shares, and take several pieces of 1 MiB.
constexpr int64_t kCounts[] = {0, 1, 7, 1023, 4099, 9001};
constexpr int64_t kManyPieces = 600'001;

std::vector<int64_t> counts(int size) {
  std::vector<int64_t> all(std::begin(kCounts), std::end(kCounts));
  if (size == 3) all.push_back(kManyPieces);
  return all;
}

template <class T>
void check_all_reduce(int size) {
  Ranks ranks(size);
  for (const int64_t count : counts(size)) {
    const auto expected = sum<T>(size, count);
    ranks.run_ok([&](Communicator& comm, Stream& stream) -> Status {
      auto in = input<T>(comm.rank(), count);
      std::vector<T> out(in.size());
      RETURN_IF_ERROR(comm.all_reduce(in.data(), out.data(), count, kType<T>, stream));
      EXPECT_TRUE(same(expected, out.data())) << size << " ranks, " << count << " elements";
      RETURN_IF_ERROR(comm.all_reduce(in.data(), in.data(), count, kType<T>, stream));
      EXPECT_TRUE(same(expected, in.data())) << "in place";
      return ok();
    });
  }
}

TEST(ThreadGroup, SumsFollowThePairwiseTree) {
  for (const int size : {1, 2, 3, 5, 6, 8}) {
    check_all_reduce<float>(size);
    check_all_reduce<BF16>(size);
  }
}

template <class T>
void check_reduce_scatter(int size) {
  Ranks ranks(size);
  for (const int64_t count : counts(size)) {
    const auto expected = sum<T>(size, size * count);
    ranks.run_ok([&](Communicator& comm, Stream& stream) -> Status {
      const int64_t mine = comm.rank() * count;
      const std::vector<T> wanted(expected.begin() + mine, expected.begin() + mine + count);
      auto in = input<T>(comm.rank(), size * count);
      std::vector<T> out(wanted.size());
      RETURN_IF_ERROR(comm.reduce_scatter(in.data(), out.data(), count, kType<T>, stream));
      EXPECT_TRUE(same(wanted, out.data())) << size << " ranks, " << count << " elements";
      RETURN_IF_ERROR(comm.reduce_scatter(in.data(), in.data() + mine, count, kType<T>, stream));
      EXPECT_TRUE(same(wanted, in.data() + mine)) << "in place";
      return ok();
    });
  }
}

TEST(ThreadGroup, EveryRankGetsItsRowOfTheSum) {
  for (const int size : {2, 3, 8}) {
    check_reduce_scatter<float>(size);
    check_reduce_scatter<BF16>(size);
  }
}

TEST(ThreadGroup, GathersRowsOfAllRanks) {
  for (const int size : {1, 2, 3, 7}) {
    Ranks ranks(size);
    for (const int64_t count : counts(size)) {
      std::vector<uint8_t> expected;
      for (int rank = 0; rank < size; ++rank)
        expected.insert(expected.end(), static_cast<size_t>(count),
                        static_cast<uint8_t>(rank * 31 + count));
      ranks.run_ok([&](Communicator& comm, Stream& stream) -> Status {
        std::vector<uint8_t> out(expected.size());
        const std::vector<uint8_t> in(static_cast<size_t>(count),
                                      static_cast<uint8_t>(comm.rank() * 31 + count));
        RETURN_IF_ERROR(comm.all_gather(in.data(), out.data(), count, DType::kU8, stream));
        EXPECT_EQ(out, expected);
        uint8_t* const mine = out.data() + comm.rank() * count;
        std::fill(out.begin(), out.end(), uint8_t{0});
        std::copy(in.begin(), in.end(), mine);
        RETURN_IF_ERROR(comm.all_gather(mine, out.data(), count, DType::kU8, stream));
        EXPECT_EQ(out, expected) << "in place";
        return ok();
      });
    }
  }
}

// Columns of rank r: floor(units * r / size) and on; x is wider than that, and rows have gaps.
TEST(ThreadGroup, PutsColumnsSideBySide) {
  constexpr int64_t kRows = 3, kGap = 5;  // with units of 50,001, rows go over several pieces
  for (const int size : {1, 2, 3, 8}) {
    Ranks ranks(size);
    for (const int64_t units : {1, 4, 8, 11}) {
      for (const int64_t unit : {1, 7, 50'001}) {
        if (unit > 7 && size != 3) continue;
        const int64_t cols = units * unit, stride = cols + kGap;
        std::vector<int32_t> expected(static_cast<size_t>(kRows * stride), -1);
        for (int64_t row = 0; row < kRows; ++row)
          for (int rank = 0; rank < size; ++rank)
            for (int64_t c = units * rank / size * unit; c < units * (rank + 1) / size * unit; ++c)
              expected[static_cast<size_t>(row * stride + c)] = static_cast<int32_t>(
                  rank * 100'000'000 + row * 10'000'000 + (c - units * rank / size * unit));
        ranks.run_ok([&](Communicator& comm, Stream& stream) -> Status {
          const int64_t mine = (units / size + 1) * unit + 2;
          std::vector<int32_t> x, out(expected.size(), -1);
          for (int64_t row = 0; row < kRows; ++row)
            for (int64_t c = 0; c < mine; ++c)
              x.push_back(static_cast<int32_t>(comm.rank() * 100'000'000 + row * 10'000'000 + c));
          RETURN_IF_ERROR(comm.gather_columns(View::matrix(x.data(), DType::kI32, kRows, mine),
                                              unit, {out.data(), DType::kI32, kRows, cols, stride},
                                              stream));
          EXPECT_EQ(out, expected) << size << " ranks, " << units << " x " << unit;
          return ok();
        });
      }
    }
  }
}

TEST(ThreadGroup, OneRanksBytesGoToAll) {
  constexpr int kSize = 3;
  Ranks ranks(kSize);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4097}, size_t{3'000'001}}) {
    for (int from = 0; from < kSize; ++from) {
      ranks.run_ok([&](Communicator& comm, Stream& stream) -> Status {
        std::vector<uint8_t> data(bytes, static_cast<uint8_t>(comm.rank() + 1));
        RETURN_IF_ERROR(comm.broadcast(data.data(), bytes, from, stream));
        EXPECT_EQ(data, std::vector<uint8_t>(bytes, static_cast<uint8_t>(from + 1)));
        return ok();
      });
    }
  }
}

TEST(ThreadGroup, BytesGoAroundTheRing) {
  constexpr int kSize = 5;
  Ranks ranks(kSize);
  const auto around = [&](size_t length, Communicator& comm, Stream& stream) -> Status {
    std::vector<int32_t> data(length, comm.rank() == 0 ? 42 : 0);
    const size_t bytes = data.size() * sizeof(int32_t);
    const int from = (comm.rank() + kSize - 1) % kSize, to = (comm.rank() + 1) % kSize;
    for (int turn = 0; turn < 3; ++turn) {
      if (comm.rank() > 0) RETURN_IF_ERROR(comm.recv(data.data(), bytes, from, stream));
      for (int32_t& x : data) ++x;
      RETURN_IF_ERROR(comm.send(data.data(), bytes, to, stream));
      if (comm.rank() == 0) RETURN_IF_ERROR(comm.recv(data.data(), bytes, from, stream));
    }
    const int32_t last = comm.rank() == 0 ? kSize : comm.rank() + 1;  // additions in its last turn
    const std::vector<int32_t> expected(data.size(), 42 + 2 * kSize + last);
    EXPECT_EQ(data, expected);
    return ok();
  };
  // The second one is longer than the memory between two ranks.
  for (const size_t length : {size_t{1001}, size_t{3'000'001}})
    ranks.run_ok([&](Communicator& comm, Stream& s) { return around(length, comm, s); });
}

TEST(ThreadGroup, NobodyPassesABarrierAlone) {
  constexpr int kSize = 4, kTurns = 200;
  Ranks ranks(kSize);
  std::atomic<int> num_here = 0;
  ranks.run_ok([&](Communicator& comm, Stream& stream) -> Status {
    for (int turn = 1; turn <= kTurns; ++turn) {
      ++num_here;
      RETURN_IF_ERROR(comm.barrier(stream));
      EXPECT_GE(num_here, turn * kSize);
    }
    return ok();
  });
}

// Sends of a rank may go ahead of the other's receives until their memory is full.
Status send_until_full(Communicator& comm, int to, Stream& stream) {
  const std::vector<std::byte> megabyte(size_t{1} << 20);
  while (true) RETURN_IF_ERROR(comm.send(megabyte.data(), megabyte.size(), to, stream));
}

TEST(ThreadGroup, AnAbortWakesEveryRank) {
  for (const bool leaves : {false, true}) {
    Ranks ranks(4);
    const auto statuses = ranks.run([&](Communicator& comm, Stream& stream) -> Status {
      const int rank = comm.rank();
      RETURN_IF_ERROR(comm.barrier(stream));
      float x = 0;
      if (rank == 3 && leaves) ranks.leave(3);
      if (rank == 3 && !leaves) comm.abort(unavailable("rank 3 has no memory"));
      if (rank == 3) return ok();
      if (rank == 2) return comm.recv(&x, sizeof(x), 3, stream);
      if (rank == 1) return send_until_full(comm, 3, stream);
      return comm.all_reduce(&x, &x, 1, DType::kF32, stream);
    });
    for (size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kUnavailable) << statuses[rank];
      EXPECT_THAT(statuses[rank].ToString(), HasSubstr(leaves ? "has left" : "no memory"));
    }
    // The first error is kept.
    ranks[0].abort(internal_error("something else"));
    const auto later = ranks.run([](Communicator& comm, Stream& s) { return comm.barrier(s); });
    for (const Status& status : later) EXPECT_EQ(status, statuses[0]);
    EXPECT_EQ(ranks[1].failure(), statuses[0]);
  }
}

TEST(ThreadGroup, AWaitHasALimit) {
  for (const int waits_in : {0, 1, 2}) {
    Ranks ranks(3, std::chrono::milliseconds(50));
    const auto statuses = ranks.run([&](Communicator& comm, Stream& stream) -> Status {
      float x = 0;
      if (comm.rank() > 0) return ok();
      if (waits_in == 1) return send_until_full(comm, 2, stream);
      if (waits_in == 2) return comm.recv(&x, sizeof(x), 2, stream);
      return comm.all_reduce(&x, &x, 1, DType::kF32, stream);
    });
    EXPECT_EQ(statuses[0].code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(statuses[0].ToString(),
                AllOf(HasSubstr("rank 0 waits in"),
                      HasSubstr(waits_in == 0 ? "rank 1 did not come within 0.050 s"
                                              : "rank 2 did not come within 0.050 s")));
    for (const Status& status : ranks.run([](Communicator&c, Stream&s) { return c.barrier(s); }))
      EXPECT_EQ(status, statuses[0]);
  }
}

// One of the ranks fails while another works on its memory.
TEST(ThreadGroup, MemoryIsNotTouchedAfterAFailedCall) {
  constexpr int kSize = 4;
  for (int turn = 0; turn < 50; ++turn) {
    Ranks ranks(kSize);
    std::thread aborts([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(turn * 10));
      ranks[turn % kSize].abort(cancelled("stop"));
    });
    const auto statuses = ranks.run([&](Communicator& comm, Stream& stream) -> Status {
      while (true) {
        auto in = std::make_unique<std::vector<float>>(input<float>(comm.rank(), 3000));
        RETURN_IF_ERROR(comm.all_reduce(in->data(), in->data(), 3000, DType::kF32, stream));
      }
    });
    aborts.join();
    for (const Status& status : statuses) EXPECT_EQ(status, cancelled("stop"));
  }
}

TEST(ThreadGroup, RefusesWhatDoesNotFit) {
  const auto message = [](const Ranks::Work& work) {
    Ranks ranks(2);
    const auto statuses = ranks.run(work);
    EXPECT_EQ(statuses[0].code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(statuses[1].code(), absl::StatusCode::kInvalidArgument);
    return statuses[0].ToString();
  };
  float x[4] = {};
  EXPECT_THAT(message([&](Communicator& comm, Stream& stream) {
                return comm.all_gather(x, x + 2, comm.rank(), DType::kF32, stream);
              }),
              AllOf(HasSubstr("all_gather of 0 f32"), HasSubstr("all_gather of 1 f32")));
  EXPECT_THAT(message([&](Communicator& comm, Stream& stream) {
                if (comm.rank() == 1) return comm.recv(x, 8, 0, stream);
                RETURN_IF_ERROR(comm.send(x, 4, 1, stream));
                return comm.barrier(stream);
              }),
              HasSubstr("rank 0 sends 4 bytes, rank 1 wants 8"));
  EXPECT_THAT(message([&](Communicator& comm, Stream& stream) {
                return comm.all_reduce(x, x, 1, DType::kI32, stream);
              }),
              HasSubstr("type 'i32' is not f32 or bf16"));
  EXPECT_THAT(message([&](Communicator& comm, Stream& stream) {
                return comm.all_reduce(x, x + 1, 2, DType::kF32, stream);
              }),
              HasSubstr("share some memory"));
  EXPECT_THAT(message([&](Communicator& comm, Stream& stream) {
                return comm.all_reduce(x, x, -1, DType::kF32, stream);
              }),
              HasSubstr("count: -1"));
  EXPECT_THAT(message([&](Communicator& comm, Stream& stream) {
                return comm.send(x, 4, comm.rank(), stream);
              }),
              HasSubstr("is not another one in [0, 2)"));
  EXPECT_THAT(message([&](Communicator& comm, Stream& stream) {
                return comm.gather_columns(View::matrix(x, DType::kF32, 1, 1), 2,
                                           View::matrix(x + 1, DType::kF32, 1, 3), stream);
              }),
              HasSubstr("unit 2 does not divide the 3 columns"));
  EXPECT_THAT(message([&](Communicator& comm, Stream& stream) {
                return comm.gather_columns(View::matrix(x, DType::kF32, 1, 1), 2,
                                           View::matrix(x + 1, DType::kF32, 1, 4), stream);
              }),
              HasSubstr("x is f32 [1, 1]; for 'out' f32 [1, 4] it must be f32 [1, >= 2]"));
  EXPECT_THAT(
      message([&](Communicator& comm, Stream& stream) { return comm.broadcast(x, 4, 2, stream); }),
      HasSubstr("from: rank 2 is not in [0, 2)"));
  EXPECT_THAT(message([&](Communicator& comm, Stream& stream) {
                return comm.broadcast(x, 4, comm.rank(), stream);
              }),
              HasSubstr("broadcast of 4 bytes of rank"));
  EXPECT_THAT(make_thread_group(0, kLong).status().ToString(), HasSubstr("num_ranks: 0"));
  EXPECT_THAT(make_thread_group(kMaxHostRanks + 1, kLong).status().ToString(),
              HasSubstr("[1, 64]"));
  EXPECT_THAT(make_thread_group(2, Duration(0)).status().ToString(), HasSubstr("time_limit: 0"));
}

}  // namespace
}  // namespace nereid::comm
