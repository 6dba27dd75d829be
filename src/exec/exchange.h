// Exchange between the ranks of a model: communicators of one rank, exchange ops of its plan.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "comm/communicator.h"
#include "io/plan.h"
#include "kernels/api/exchange_ops.h"
#include "kernels/api/ops.h"
#include "tensor/device.h"

namespace nereid::exec {

// Communicators of one rank. Null: a group of one rank.
struct RankComms {
  std::unique_ptr<comm::Communicator> tensor;    // of the tensor ranks of its stage
  std::unique_ptr<comm::Communicator> pipeline;  // of its tensor rank in all stages, by stage
};

// Calls are made inside submitted work of the rank's stream; not so abort(), seconds(), check().
class Exchange {
 public:
  explicit Exchange(RankComms comms) : comms_(std::move(comms)) {}

  // InvalidArgument: a communicator that `mapping` needs is missing, or has another size or rank.
  Status check(const io::Mapping& mapping) const;

  // Calls of a plan. Views may have columns between rows only in AllGather and TakeColumns.
  Status run(const kernels::AllReduce& op, Stream& stream);
  Status run(const kernels::AllReduceNorm& op, Stream& stream);
  Status run(const kernels::AllGather& op, Stream& stream);
  Status run(const kernels::TakeColumns& op, Stream& stream);
  Status run(const kernels::Send& op, Stream& stream);
  Status run(const kernels::Recv& op, Stream& stream);

  // tokens [count] of the first tensor rank, to all tensor ranks of the stage.
  Status broadcast_tokens(int32_t* tokens, int32_t count, Stream& stream);

  bool has_tensor_ranks() const { return comms_.tensor != nullptr; }
  bool has_stages() const { return comms_.pipeline != nullptr; }

  // Ends both groups with `reason`, so that no rank waits for this one; thread-safe.
  void abort(const Status& reason) const;

  // The first error of a call, with the reason of the rank that failed; OK: none. Called on the
  // thread of the stream.
  const Status& failure() const { return failure_; }
  // The reason for which a group has ended, where calls are enqueued also that of a call that
  // succeeded. Asked when the work is done. Thread-safe.
  Status ended() const;

  // Time in calls on devices that run work synchronously; on others that of enqueuing.
  double seconds() const { return static_cast<double>(nanoseconds_) * 1e-9; }

 private:
  template <std::invocable F>
  Status timed(const F& call);

  const RankComms comms_;
  Status failure_;
  std::atomic<int64_t> nanoseconds_ = 0;
};

// Ends the exchange with other ranks if work of a step does not succeed, or throws.
class StepGuard {
 public:
  // `rank`: its name in errors; empty: no other ranks.
  StepGuard(const Exchange& exchange, const std::string& rank) : exchange_(exchange), rank_(rank) {}
  ~StepGuard();
  // The error of the rank that failed first, with its name.
  Status done(Status status);

 private:
  const Exchange& exchange_;
  const std::string& rank_;
  bool is_done_ = false;
};

}  // namespace nereid::exec
