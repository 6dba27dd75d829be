// How the ranks of a group on CPUs reach each other: staging buffers of all ranks, messages between
// two of them, the first failure. Shared memory (group_state.h) or sockets (socket_group.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace nereid::comm {

inline constexpr size_t kStagingBytes = size_t{1} << 20;
inline constexpr int kMaxHostRanks = 64;  // of a group

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

// One rank's end. Calls come from one thread at a time, except fail() and failure().
class Link {
 public:
  virtual ~Link() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Staging buffer of this rank in the next exchange [kStagingBytes], and of a rank in the one that
  // ended last. The two of this rank are apart.
  virtual std::byte* next_staging() = 0;
  virtual const std::byte* staged(int rank) const = 0;

  // Whether every rank adds up all of a piece of so many bytes (one exchange); else each adds up
  // its share and gives it to all (two exchanges).
  virtual bool sums_whole(int64_t bytes) const = 0;

  // Ends the writing of the first `bytes` of next_staging(), and waits until all ranks have done
  // so. InvalidArgument: another rank makes another call. `num_threads`: busy threads of this rank.
  virtual Status exchange(const Call& call, size_t bytes, int num_threads) = 0;

  // A message to another rank. send() returns when this rank may write `data` again.
  virtual Status send(int to, const void* data, size_t bytes, int num_threads) = 0;
  virtual Status recv(int from, void* data, size_t bytes, int num_threads) = 0;

  // Ends the group; the first reason counts. Any thread.
  virtual void fail(const Status& reason) = 0;
  // The first reason. Any thread.
  virtual Status failure() const = 0;
};

}  // namespace nereid::comm
