// Collectives and point-to-point messages between the ranks of a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "tensor/device.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace nereid::comm {

// Options of a group: how long its ranks wait, how they add.
struct GroupOptions {
  Duration time_limit = std::chrono::seconds(30);  // of a wait for another rank
  // All sums along the tree of Communicator. Else a library may add large messages in its own
  // order; its bits depend on the group and the size alone.
  bool deterministic = false;
  // "": the fastest for each size. Tests and benchmarks: "one-shot", "two-shot", "direct" or "nccl"
  // for all messages that it takes. GPUs only.
  std::string way;
};

// A sum over ranks with what follows it in a decoder layer: kernels::Norm (RMS, one piece, no
// bias) with the sum as its `add`.
//   sum += all_reduce(x); out = sum / sqrt(mean(sum^2) + eps) * (weight + weight_offset)
struct ReducedNorm {
  View x;                        // bf16 or f32 [n, hidden], dense; overwritten
  View sum;                      // f32 [n, hidden]: the residual, in place
  const void* weight = nullptr;  // bf16 [hidden]
  float eps = 0;
  float weight_offset = 0;
  View out;     // bf16, f32 or f8e4m3 (rounded to bf16 first) [n, hidden]
  View scales;  // f32 [n, 1], with f8e4m3 out
};

// One rank's endpoint of a group. All ranks make the same collective calls in the same order, with
// equal counts and types; each send has a recv of the same size. Calls are made like kernels:
// inside submitted work of a stream of the rank's device, with memory of that device, in stream
// order. Synchronous devices return when the call is done, others enqueue it.
//
// `in` and `out` do not overlap unless in place, as stated per call.
//
// Sums are taken in f32 along a balanced pairwise tree of ranks; bf16 is rounded once, at the end:
// sum(lo, n) = sum(lo, h) + sum(lo + h, n - h), h = the largest power of two < n. So a rank that
// adds up k partial sums in the same tree, and k times fewer ranks, give the same bits.
//
// A failing rank ends the group: all current and later calls return the first error.
class Communicator {
 public:
  virtual ~Communicator() = default;  // destruction ends the group for the other ranks

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // out = sum over ranks of `in`, [count], f32 or bf16. Equal bits on all ranks and in all runs. In
  // place: out = in.
  virtual Status all_reduce(const void* in, void* out, int64_t count, DType type,
                            Stream& stream) = 0;

  // args.out = Norm(args.sum + all_reduce(x)), with the bits of all_reduce() and kernels::Norm.
  // Unimplemented: a group of CPUs, for which no plan has the call.
  virtual Status all_reduce_norm(const ReducedNorm& /*args*/, Stream& /*stream*/) {
    return unsupported("this group has no all_reduce_norm");
  }

  // out [size, count]: row r = `in` [count] of rank r. In place: in = row rank() of out.
  virtual Status all_gather(const void* in, void* out, int64_t count, DType type,
                            Stream& stream) = 0;

  // out [count] = row rank() of the sum over ranks of `in` [size, count], summed as in all_reduce.
  // In place: out = row rank() of in.
  virtual Status reduce_scatter(const void* in, void* out, int64_t count, DType type,
                                Stream& stream) = 0;

  // Columns side by side: out [rows, units * unit]. With b(r) = floor(units * r / size), rank r
  // contributes the first unit * (b(r + 1) - b(r)) columns of its x [rows, >= that many], at column
  // unit * b(r); with fewer units than ranks some contribute none. Any type, the same for both.
  // Strides are each rank's own. InvalidArgument: rows, types, columns or `unit` that do not fit.
  virtual Status gather_columns(const View& x, int64_t unit, const View& out, Stream& stream) = 0;

  // `data` of rank `from` to `data` of all ranks.
  virtual Status broadcast(void* data, size_t bytes, int from, Stream& stream) = 0;

  // May block until the peer's call: two ranks that send to each other must agree on an order.
  virtual Status send(const void* data, size_t bytes, int to, Stream& stream) = 0;
  virtual Status recv(void* data, size_t bytes, int from, Stream& stream) = 0;

  // Returns when all ranks have called it.
  virtual Status barrier(Stream& stream) = 0;

  // OK, or the reason for which the group has ended. Thread-safe. Where calls are enqueued, work
  // that waited in vain ends like any other: ask after it, before its results are used.
  virtual Status failure() const { return ok(); }

  // How messages of each size travel and what was measured: lines for a log.
  virtual std::string text() const { return {}; }

  // Ends the group with `reason` (not OK); thread-safe. The first one counts.
  virtual void abort(const Status& reason) = 0;
};

}  // namespace nereid::comm
