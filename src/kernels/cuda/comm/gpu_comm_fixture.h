// Ranks of a group, numbers and sums on the host, and the tests of each part of gpu_comm_test.
#pragma once

#include <fmt/format.h>

#include <barrier>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/open.h"

namespace nereid::kernels {

using Bytes = std::vector<std::byte>;

struct TestOptions {
  bool once = false;
  std::string only;
  std::vector<std::vector<int>> groups;
};

// The ranks of a group: their cards, endpoints and streams, a thread for each during a test.
class Ranks {
 public:
  static StatusOr<std::unique_ptr<Ranks>> open(const std::vector<int>& cards) {
    auto ranks = std::make_unique<Ranks>();
    for (const int card : cards) {
      ASSIGN_OR_RETURN(OpenedDevice opened, open_device(fmt::format("cuda:{}", card)));
      ranks->opened_.push_back(std::make_unique<OpenedDevice>(std::move(opened)));
      ASSIGN_OR_RETURN(auto stream, ranks->opened_.back()->device->create_stream());
      ranks->streams_.push_back(std::move(stream));
    }
    return ranks;
  }

  Status join(const comm::GroupOptions& options) {
    endpoints_.clear();
    std::vector<const OpenedDevice*> devices;
    for (const auto& opened : opened_) devices.push_back(opened.get());
    ASSIGN_OR_RETURN(endpoints_, join_devices(devices, options));
    return ok();
  }
  void leave() { endpoints_.clear(); }

  int size() const { return static_cast<int>(opened_.size()); }
  OpenedDevice& opened(int rank) { return *opened_[static_cast<size_t>(rank)]; }
  comm::Communicator& endpoint(int rank) { return *endpoints_[static_cast<size_t>(rank)]; }
  Stream& stream(int rank) { return *streams_[static_cast<size_t>(rank)]; }

  // Runs work(rank) in a thread for each rank; the first error.
  Status each(const std::function<Status(int)>& work) {
    std::vector<Status> results(opened_.size());
    std::vector<std::thread> threads;
    meeting_.emplace(size());
    for (int rank = 0; rank < size(); ++rank)
      threads.emplace_back([&, rank] {
        Status& result = results[static_cast<size_t>(rank)];
        result = work(rank);
        if (!result.ok()) meeting_->arrive_and_drop();
      });
    for (std::thread& thread : threads) thread.join();
    for (int rank = 0; rank < size(); ++rank)
      if (const Status& result = results[static_cast<size_t>(rank)]; !result.ok())
        return annotate(result, fmt::format("rank {}", rank));
    return ok();
  }

  // run_alone() in each(), when all ranks call it. Taking and freeing memory waits for the card's
  // kernels, which on one card wait for the other rank: so all do that at the same time.
  Status run(int rank, const std::function<Status(Stream&)>& work) {
    meeting_->arrive_and_wait();
    const Status status = run_alone(rank, work);
    meeting_->arrive_and_wait();
    return status;
  }

  // Submits work and waits for it; its error, or the failure of the group.
  Status run_alone(int rank, const std::function<Status(Stream&)>& work) {
    ASSIGN_OR_RETURN(const auto event, stream(rank).submit(work));
    RETURN_IF_ERROR(event->wait());
    return endpoint(rank).failure();
  }

  StatusOr<Buffer> upload(int rank, const Bytes& bytes) {
    return opened(rank).device->upload(bytes.data(), bytes.size());
  }
  StatusOr<Bytes> download(int rank, const Buffer& buffer) {
    Bytes bytes(buffer.size());
    ASSIGN_OR_RETURN(const Buffer host, opened(rank).device->allocate_host(buffer.size()));
    ASSIGN_OR_RETURN(const auto event, stream(rank).submit([&](Stream& s) {
      return s.copy(host.data(), buffer.data(), buffer.size());
    }));
    RETURN_IF_ERROR(event->wait());
    std::memcpy(bytes.data(), host.data(), bytes.size());
    return bytes;
  }

 private:
  std::vector<std::unique_ptr<OpenedDevice>> opened_;
  std::vector<std::unique_ptr<comm::Communicator>> endpoints_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::optional<std::barrier<>> meeting_;
};

inline float number_at(const Bytes& bytes, DType type, int64_t i) {
  if (type == DType::kF32) {
    float x;
    std::memcpy(&x, bytes.data() + 4 * i, 4);
    return x;
  }
  uint16_t x;
  std::memcpy(&x, bytes.data() + 2 * i, 2);
  return std::bit_cast<float>(uint32_t{x} << 16);
}
inline void set_number(Bytes& bytes, DType type, int64_t i, float x) {
  if (type == DType::kF32) {
    std::memcpy(bytes.data() + 4 * i, &x, 4);
  } else {
    const BF16 rounded = to_bf16(x);
    std::memcpy(bytes.data() + 2 * i, &rounded, 2);
  }
}

// Numbers of very different sizes, some zeros of both signs; with `odd` also the words that stand
// for empty places, and infinities.
inline Bytes random_numbers(DType type, int64_t count, uint64_t seed, bool odd = false) {
  Bytes bytes(static_cast<size_t>(count) * size_of(type));
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto bits = static_cast<uint32_t>(state >> 32);
    float x = (static_cast<float>(bits >> 8) * 0x1p-23f - 1.0f) *
              std::ldexp(1.0f, static_cast<int>(bits % 9) - 4);
    if (bits % 31 == 0) x = bits % 2 == 0 ? 0.0f : -0.0f;
    if (odd && bits % 97 == 0) x = INFINITY;
    set_number(bytes, type, i, x);
    if (odd && bits % 53 == 0)
      std::memset(bytes.data() + static_cast<size_t>(i) * size_of(type), 0xff, size_of(type));
  }
  return bytes;
}

inline float tree_sum(const std::vector<Bytes>& x, DType type, int64_t i, size_t first,
                      size_t count) {
  if (count == 1) return number_at(x[first], type, i);
  const size_t half = std::bit_floor(count - 1);
  return tree_sum(x, type, i, first, half) + tree_sum(x, type, i, first + half, count - half);
}
inline Bytes sum_of(const std::vector<Bytes>& x, DType type, int64_t first, int64_t count) {
  Bytes sum(static_cast<size_t>(count) * size_of(type));
  for (int64_t i = 0; i < count; ++i)
    set_number(sum, type, i, tree_sum(x, type, first + i, 0, x.size()));
  return sum;
}

// Compares numbers: equal bits, or both NaN.
inline Status compare(const Bytes& got, const Bytes& wanted, DType type, std::string_view what) {
  if (got.size() != wanted.size())
    return internal_error("{}: {} bytes, not {}", what, got.size(), wanted.size());
  if (got == wanted) return ok();
  const auto element = size_of(type);
  for (size_t i = 0; i < got.size() / element; ++i) {
    if (std::memcmp(got.data() + i * element, wanted.data() + i * element, element) == 0) continue;
    if (type == DType::kF32 || type == DType::kBF16) {
      const float a = number_at(got, type, static_cast<int64_t>(i));
      const float b = number_at(wanted, type, static_cast<int64_t>(i));
      if (std::isnan(a) && std::isnan(b)) continue;
      return internal_error("{}: number {} is {}, not {}", what, i, a, b);
    }
    return internal_error("{}: element {} differs", what, i);
  }
  return ok();
}

inline Bytes poison(size_t bytes) { return Bytes(bytes, std::byte{0x5a}); }

// gpu_comm_sums_test.cc
Status test_sums(Ranks& ranks, const TestOptions& options);
Status test_sequences(Ranks& ranks, const TestOptions& options);
Status test_norms(Ranks& ranks, const TestOptions& options);
Status test_parts(Ranks& ranks, const TestOptions& options);
Status test_library(Ranks& ranks, const TestOptions& options);
// gpu_comm_moves_test.cc
Status test_columns(Ranks& ranks, const TestOptions& options);
Status test_broadcasts(Ranks& ranks, const TestOptions& options);
Status test_messages(Ranks& ranks, const TestOptions& options);
// gpu_comm_faults_test.cc
Status test_missing(Ranks& ranks, const TestOptions& options);
Status test_abort(Ranks& ranks, const TestOptions& options);
Status test_refusals(Ranks& ranks, const TestOptions& options);

}  // namespace nereid::kernels
