// Exchange between the GPUs of one process: what host and kernels share.
//
// Every rank has a block of device memory, mapped by all others (peer access), and kernels write
// straight into it. No call takes memory, changes host state that a captured graph would miss, or
// uses multicast. Three ways to add up a message of N bytes among P ranks:
//
//   one-shot  each rank writes its N bytes to all others, and each adds up all. (P - 1) N bytes
//             leave a card, one way through the link: the quickest for small messages.
//   two-shot  rank r owns every P-th piece (512 bytes, a warp's). Each rank writes a piece to its
//             owner; the owner adds it up and writes the sum to all. 2 (P - 1) / P N bytes, two
//             ways.
//   direct    ranks tell each other the addresses of `in` and `out` and say when they may be read;
//             rank r reads its share from all and writes the sum to all. No copy through buffers,
//             two barriers: the quickest for large messages. Also gathers, broadcasts, barriers.
//
// Arrival, one-shot and two-shot: the data is the flag. An empty word is kEmpty (a NaN that no
// arithmetic makes; a sender's own is replaced by another NaN). A receiver spins on the words
// themselves, and writes kEmpty again when it has them. There is no barrier and no fence.
//
// Reuse: a call uses half `epoch % 2` of the buffer. Rank q writes into a half again in call e + 2,
// after its call e + 1 has received from every rank r, which r sent after its kernel e had ended
// and with it r's reading and emptying of that half. So messages of any sizes and ways may follow
// each other, and grids may differ. Send and recv take part in no epoch; they have counters of a
// pair.
//
// Epochs lie in device memory, one for each block index (all equal between kernels): a kernel of G
// blocks advances index b, b + G, ... in its block b, without an atomic. So replays of a captured
// graph continue where the last one ended.
//
// Order of additions: Communicator's tree over ranks in f32, whatever the way, so all own ways give
// the same bits; NCCL's may differ with more than two ranks.
//
// Failure: a wait looks at `Control` in host memory every kLooks looks, and at the clock. The first
// rank that waits longer than the limit writes whom it waited for and ends the group; all waits of
// all ranks then return, with garbage for data, which failure() reports.
//
// Two ranks on one card work if both kernels fit on it beside each other: grids are small, and the
// next kernel does not begin early, as it could take the place of the peer's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace nereid::kernels::cuda {

inline constexpr int kMaxPeers = 8;
inline constexpr int kMaxExchangeBlocks = 512;
inline constexpr uint32_t kEmpty = 0xffffffffu;
inline constexpr size_t kHalfBytes = size_t{8} << 20;  // of the buffer

// In host memory, written by the rank that ends the group.
struct Control {
  uint32_t ended;
  struct Waited {
    uint32_t peer;  // 1 + rank of the peer; 0: did not wait in vain
    uint32_t epoch;
  } waited[kMaxPeers];
};

// Where a rank's data is; of one block, in the memory of the peer that reads it.
struct Mail {
  const void* in;
  void* out;
  int64_t out_stride;  // bytes
  uint32_t arrived;    // epoch or number of the message, written last
  uint32_t done;       // the writer's share of that epoch has been written
};

// A rank's block of device memory.
struct PeerMemory {
  uint32_t epochs[kMaxExchangeBlocks];
  uint32_t sent[kMaxPeers][kMaxExchangeBlocks];      // messages to a peer
  uint32_t received[kMaxPeers][kMaxExchangeBlocks];  // messages from a peer
  Mail mail[kMaxPeers][kMaxExchangeBlocks];          // from each rank: collective calls
  Mail from[kMaxPeers][kMaxExchangeBlocks];          // from each rank, which sends to this one
  Mail to[kMaxPeers][kMaxExchangeBlocks];            // from each rank, which receives from this one
  alignas(256) unsigned char halves[2][kHalfBytes];  // kEmpty between calls
};

// A rank's view of its group: argument of every kernel.
struct Peers {
  PeerMemory* memory[kMaxPeers];
  Control* control;
  uint64_t limit_ns;  // of a wait
  int rank, size;
  bool begins_next;  // the next kernel may begin early
};

// Launch shape of one-shot and two-shot.
struct Shape {
  bool two_shot;
  unsigned threads;     // of a block
  unsigned max_blocks;  // at most kMaxExchangeBlocks
};

// Whether the message fits the buffers of this way.
bool fits_half(bool two_shot, int64_t bytes, int size);

// Whether 16-byte accesses are possible; else launch_direct_sum().
bool fits_exchange(const void* in, const void* out, int64_t bytes);

// out = sum, [count]; requires fits_half() and fits_exchange(). Launches return the launch error.
cudaError_t launch_exchange(const Peers& peers, const Shape& shape, const void* in, void* out,
                            int64_t count, DType type, cudaStream_t stream);

// out = sum, [count], any size; `scatter`: only row `rank` of `in` [size, count].
cudaError_t launch_direct_sum(const Peers& peers, const void* in, void* out, int64_t count,
                              DType type, bool scatter, unsigned blocks, cudaStream_t stream);

// Each rank writes `rows` rows of `bytes` from `in` to column `at` (bytes) of all ranks' `out`;
// rows = 0: a barrier.
struct Columns {
  const void* in;
  void* out;
  int64_t in_stride, out_stride;  // bytes; the latter of this rank
  int64_t rows, bytes, at;
};
cudaError_t launch_columns(const Peers& peers, const Columns& columns, unsigned blocks,
                           cudaStream_t stream);

cudaError_t launch_send(const Peers& peers, const void* data, int64_t bytes, int to,
                        cudaStream_t stream);
cudaError_t launch_recv(const Peers& peers, void* data, int64_t bytes, int from,
                        cudaStream_t stream);

// One-shot or two-shot with residual and norm; see comm::ReducedNorm.
struct NormRows {
  const void* x;  // bf16 [rows, width], dense
  float* sum;
  const void* weight;  // bf16
  void* out;           // bf16, or f8e4m3 with scales
  float* scales;       // or null
  int64_t sum_stride, out_stride, scales_stride;
  float eps, weight_offset;
  int width;
  int64_t rows;
};
bool fits_exchange_norm(const NormRows& rows, bool two_shot, int size, int num_units);
cudaError_t launch_exchange_norm(const Peers& peers, const NormRows& rows, bool two_shot,
                                 int num_units, bool clusters, cudaStream_t stream);

// Loads the kernels on the current device: the first launch of a kernel may wait for those that
// run, which would wait for it.
cudaError_t load_exchange_kernels(int size);
cudaError_t load_direct_kernels(int size);
cudaError_t load_exchange_norm_kernels(int size);

// Empties the buffers of a rank's memory and sets its counters to zero.
cudaError_t clear_peer_memory(PeerMemory* memory, cudaStream_t stream);

}  // namespace nereid::kernels::cuda
