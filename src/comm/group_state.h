// The state of a group in a shared segment: arrivals of ranks, messages between two of them, waits
// that spin and then sleep, the first failure. It is plain data and lock-free atomics.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "comm/link.h"
#include "comm/shared_group.h"
#include "comm/shared_memory.h"
#include "tensor/spin.h"

namespace nereid::comm {

// A rank's view of the segment. Calls of one rank come from one thread at a time, except fail().
//
// Collectives are made of phases. In phase p each rank writes its staging buffer p % 2, arrives,
// waits for the arrival of all, and reads the buffers of all. It writes buffer p % 2 again in phase
// p + 2, after all have arrived in p + 1, which they do when they have read those of p.
class GroupState final : public Link {
 public:
  static size_t segment_bytes(int num_ranks);
  // `memory`: zeros.
  static void init(SharedMemory& memory, int num_ranks, Duration time_limit);
  static StatusOr<std::unique_ptr<GroupState>> attach(std::shared_ptr<SharedMemory> memory,
                                                      int rank);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::byte* next_staging() override { return staging(rank_, phase_ + 1); }
  const std::byte* staged(int rank) const override { return staging(rank, phase_); }
  bool sums_whole(int64_t bytes) const override;
  Status exchange(const Call& call, size_t bytes, int num_threads) override;

  // A message through the ring of two ranks; send() returns when the rest of it fits.
  Status send(int to, const void* data, size_t bytes, int num_threads) override;
  Status recv(int from, void* data, size_t bytes, int num_threads) override;

  void fail(const Status& reason) override { fail(*memory_, reason); }
  // fail() by a process without a rank.
  static Status fail_all(const SharedMemory& memory, const Status& reason);
  Status failure() const override;

 private:
  struct Header;
  struct Rank;
  struct Ring;

  explicit GroupState(std::shared_ptr<SharedMemory> memory, int rank);

  static Status check(const SharedMemory& memory);
  static void fail(const SharedMemory& memory, const Status& reason);
  static Header& header(const SharedMemory& memory);
  static Rank& rank_state(const SharedMemory& memory, int rank);
  static void wake(const SharedMemory& memory, int rank);
  static void wake_sleepers(const SharedMemory& memory);

  Header& header() const { return header(*memory_); }
  Rank& rank_state(int rank) const { return rank_state(*memory_, rank); }
  Ring& ring(int from, int to) const;
  std::byte* ring_data(int from, int to) const;
  std::byte* staging(int rank, uint64_t phase) const;
  bool failed() const;

  // Spins, then sleeps until done(). `what` and `missing` make the error of the time limit.
  template <class Done, class What>
  Status wait(const Done& done, int missing, const What& what, int num_threads);
  // Wakes a rank that sleeps.
  void wake_if_asleep(int rank) const;

  // All of `bytes`, piecewise: what fits, what is there.
  Status write(int to, const std::byte* data, size_t bytes, int num_threads);
  Status read(int from, std::byte* data, size_t bytes, int num_threads);

  const std::shared_ptr<SharedMemory> memory_;
  const int rank_;
  const int size_;
  const size_t ring_bytes_;
  uint64_t phase_ = 0;  // that this rank has ended
};

}  // namespace nereid::comm
