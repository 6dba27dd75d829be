#include "exec/exchange.h"

#include <fmt/format.h>

#include <chrono>

#include "base/check.h"
#include "base/clock.h"

namespace nereid::exec {
namespace {

Status check_group(const comm::Communicator* group, const char* name, int32_t size, int32_t rank) {
  if (!group && size == 1) return ok();
  if (!group)
    return invalid_argument("the engine is a part for {} {}; its communicator is missing", size,
                            name);
  if (group->size() == size && group->rank() == rank) return ok();
  return invalid_argument("the engine is part {} of {} {}; the communicator's rank is {} of {}",
                          rank, size, name, group->rank(), group->size());
}

int64_t num_numbers(const View& view) {
  NEREID_CHECK(view.stride == view.cols || view.rows <= 1);
  return view.rows * view.cols;
}

size_t view_bytes(const View& view) {
  return static_cast<size_t>(num_numbers(view)) * size_of(view.dtype);
}

// Piece `index` of `count` equal pieces of the columns.
View piece_of(View view, int64_t index, int64_t count) {
  view.cols /= count;
  view.data = static_cast<std::byte*>(view.data) +
              static_cast<size_t>(index * view.cols) * size_of(view.dtype);
  return view;
}

}  // namespace

template <std::invocable F>
Status Exchange::timed(const F& call) {
  const Time start = now();
  Status status = call();
  nanoseconds_ += std::chrono::duration_cast<std::chrono::nanoseconds>(now() - start).count();
  if (failure_.ok()) failure_ = status;
  return status;
}

Status Exchange::check(const io::Mapping& mapping) const {
  RETURN_IF_ERROR(
      check_group(comms_.tensor.get(), "tensor ranks", mapping.tp, mapping.tensor_rank()));
  return check_group(comms_.pipeline.get(), "stages", mapping.pp, mapping.stage());
}

Status Exchange::run(const kernels::AllReduce& op, Stream& stream) {
  return timed([&] {
    return comms_.tensor->all_reduce(op.x.data, op.out.data, num_numbers(op.x), op.x.dtype, stream);
  });
}

Status Exchange::run(const kernels::AllReduceNorm& op, Stream& stream) {
  return timed([&] {
    return comms_.tensor->all_reduce_norm({.x = op.x,
                                           .sum = op.sum,
                                           .weight = op.weight.data,
                                           .eps = op.eps,
                                           .weight_offset = op.weight_offset,
                                           .out = op.out,
                                           .scales = op.scales},
                                          stream);
  });
}

Status Exchange::run(const kernels::AllGather& op, Stream& stream) {
  return timed([&] {
    for (int64_t i = 0; i < op.pieces; ++i)
      RETURN_IF_ERROR(comms_.tensor->gather_columns(piece_of(op.x, i, op.pieces), op.unit,
                                                    piece_of(op.out, i, op.pieces), stream));
    return ok();
  });
}

Status Exchange::run(const kernels::TakeColumns& op, Stream& stream) {
  const size_t size = size_of(op.x.dtype);
  const auto bytes = [&](int64_t columns) { return static_cast<size_t>(columns) * size; };
  return stream.copy_rows(op.out.data, bytes(op.out.stride),
                          static_cast<const std::byte*>(op.x.data) + bytes(op.column),
                          bytes(op.x.stride), bytes(op.out.cols), static_cast<size_t>(op.out.rows));
}

Status Exchange::run(const kernels::Send& op, Stream& stream) {
  return timed(
      [&] { return comms_.pipeline->send(op.x.data, view_bytes(op.x), op.stage, stream); });
}

Status Exchange::run(const kernels::Recv& op, Stream& stream) {
  return timed(
      [&] { return comms_.pipeline->recv(op.out.data, view_bytes(op.out), op.stage, stream); });
}

Status Exchange::broadcast_tokens(int32_t* tokens, int32_t count, Stream& stream) {
  return timed([&] {
    return comms_.tensor->broadcast(tokens, static_cast<size_t>(count) * sizeof(int32_t),
                                    /*from=*/0, stream);
  });
}

Status Exchange::ended() const {
  for (const auto* group : {&comms_.tensor, &comms_.pipeline})
    if (*group) RETURN_IF_ERROR((*group)->failure());
  return ok();
}

void Exchange::abort(const Status& reason) const {
  if (comms_.tensor) comms_.tensor->abort(reason);
  if (comms_.pipeline) comms_.pipeline->abort(reason);
}

StepGuard::~StepGuard() {
  if (!is_done_) exchange_.abort(internal_error("{}: a step ended with an exception", rank_));
}

Status StepGuard::done(Status status) {
  is_done_ = true;
  if (status.ok()) return status;
  if (!exchange_.failure().ok())
    status = exchange_.failure();
  else if (!rank_.empty())
    status = annotate(status, rank_);
  exchange_.abort(status);
  return status;
}

}  // namespace nereid::exec
