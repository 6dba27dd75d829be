// What the ranks of one model exchange during a step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace nereid::comm {

// One rank's end of a group. All ranks make the same collective calls in the same order, with equal
// counts and types; a send has one recv of as many bytes. Calls are made like kernels: only inside
// submitted work of a stream of the rank's device, with memory of that device, in the stream's
// order. Devices that run work synchronously return when the call is done; others enqueue it.
//
// `in` and `out` are the same memory where "in place" says so, else they share none.
//
// A rank that fails ends the group: all calls under way and all later ones return one status, which
// names what went wrong first. The group is of no more use then.
class Communicator {
 public:
  virtual ~Communicator() = default;  // a rank that leaves ends the group for those that stay

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // out = the sum over ranks of `in`, both [count], f32 or bf16. Every rank gets the same bits, and
  // the same ones each time: the order of the additions depends on the group alone. In place: out
  // is in.
  virtual Status all_reduce(const void* in, void* out, int64_t count, DType type,
                            Stream& stream) = 0;

  // out [size, count] = the `in` [count] of each rank. In place: in is row rank() of out.
  virtual Status all_gather(const void* in, void* out, int64_t count, DType type,
                            Stream& stream) = 0;

  // out [count] = row rank() of the sum over ranks of `in` [size, count], added up as in
  // all_reduce. In place: out is row rank() of in.
  virtual Status reduce_scatter(const void* in, void* out, int64_t count, DType type,
                                Stream& stream) = 0;

  // May wait for the other side, so two ranks that send to each other agree on who sends first.
  virtual Status send(const void* data, size_t bytes, int to, Stream& stream) = 0;
  virtual Status recv(void* data, size_t bytes, int from, Stream& stream) = 0;

  // Until every rank is here.
  virtual Status barrier(Stream& stream) = 0;

  // Ends the group with `reason`, which is not OK; from any thread. The first one counts.
  virtual void abort(const Status& reason) = 0;
};

}  // namespace nereid::comm
