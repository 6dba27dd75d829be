// Collectives and point-to-point messages between the ranks of a model.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace nereid::comm {

// One rank's endpoint of a group. All ranks make the same collective calls in the same order, with
// equal counts and types; each send has a recv of the same size. Calls are made like kernels:
// inside submitted work of a stream of the rank's device, with memory of that device, in stream
// order. Synchronous devices return when the call is done, others enqueue it.
//
// `in` and `out` do not overlap unless in place, as stated per call.
//
// A failing rank ends the group: all current and later calls return the first error.
class Communicator {
 public:
  virtual ~Communicator() = default;  // destruction ends the group for the other ranks

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // out = sum over ranks of `in`, [count], f32 or bf16. Equal bits on all ranks and in all runs:
  // the order of additions depends on the group only. In place: out = in.
  virtual Status all_reduce(const void* in, void* out, int64_t count, DType type,
                            Stream& stream) = 0;

  // out [size, count]: row r = `in` [count] of rank r. In place: in = row rank() of out.
  virtual Status all_gather(const void* in, void* out, int64_t count, DType type,
                            Stream& stream) = 0;

  // out [count] = row rank() of the sum over ranks of `in` [size, count], summed as in all_reduce.
  // In place: out = row rank() of in.
  virtual Status reduce_scatter(const void* in, void* out, int64_t count, DType type,
                                Stream& stream) = 0;

  // May block until the peer's call: two ranks that send to each other must agree on an order.
  virtual Status send(const void* data, size_t bytes, int to, Stream& stream) = 0;
  virtual Status recv(void* data, size_t bytes, int from, Stream& stream) = 0;

  // Returns when all ranks have called it.
  virtual Status barrier(Stream& stream) = 0;

  // Ends the group with `reason` (not OK); thread-safe. The first one counts.
  virtual void abort(const Status& reason) = 0;
};

}  // namespace nereid::comm
