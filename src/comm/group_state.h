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
#include "comm/shared_group.h"
#include "comm/shared_memory.h"
#include "tensor/spin.h"

namespace nereid::comm {

// A collective call as other ranks see it: equal on all ranks, or the group ends.
struct Call {
  enum class Kind : int32_t {
    kAllReduce,
    kAllGather,
    kReduceScatter,
    kGatherColumns,
    kBroadcast,
    kBarrier
  };
  Kind kind = Kind::kBarrier;
  int32_t type = 0;             // DType
  int64_t count = 0;            // elements; of gather_columns rows, of broadcast bytes
  int64_t unit = 0, units = 0;  // gather_columns
  int64_t root = 0;             // broadcast

  bool operator==(const Call&) const = default;
};
std::string text_of(const Call& call);

// A rank's view of the segment. Calls of one rank come from one thread at a time, except fail().
//
// Collectives are made of phases. In phase p each rank writes its staging buffer p % 2, arrives,
// waits for the arrival of all, and reads the buffers of all. It writes buffer p % 2 again in phase
// p + 2, after all have arrived in p + 1, which they do when they have read those of p.
class GroupState {
 public:
  static size_t segment_bytes(int num_ranks);
  // `memory`: zeros.
  static void init(SharedMemory& memory, int num_ranks, Duration time_limit);
  static StatusOr<std::unique_ptr<GroupState>> attach(std::shared_ptr<SharedMemory> memory,
                                                      int rank);

  int rank() const { return rank_; }
  int size() const { return size_; }
  static constexpr size_t kStagingBytes = size_t{1} << 20;

  // Staging buffer of a rank in the next phase, or in the one that exchange() ended last.
  std::byte* next_staging() const { return staging(rank_, phase_ + 1); }
  const std::byte* staged(int rank) const { return staging(rank, phase_); }

  // Ends the writing of next_staging(), and waits until all ranks have done so. InvalidArgument:
  // another rank makes another call. `num_threads`: busy threads of this rank.
  Status exchange(const Call& call, int num_threads);

  // A message through the ring of two ranks; send() returns when the rest of it fits.
  Status send(int to, const void* data, size_t bytes, int num_threads);
  Status recv(int from, void* data, size_t bytes, int num_threads);

  // Ends the group; the first reason counts. Any thread.
  void fail(const Status& reason) { fail(*memory_, reason); }
  // fail() by a process without a rank.
  static Status fail_all(const SharedMemory& memory, const Status& reason);
  // The first reason. Any thread.
  Status failure() const;

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
