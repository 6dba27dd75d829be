// The trace of one sampled request, as front ends and InferenceCall see it. What becomes of the
// events is front/trace's.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

// Complete, and written or exported, when the last reference has gone and the core has released its
// traces: so an answer keeps a reference until it is sent. All calls are thread safe.
class RequestTrace {
 public:
  virtual ~RequestTrace() = default;

  // An event of the front end: HTTP_RECV_START, GRPC_SEND_END, ...; steady-clock nanoseconds.
  virtual void report(std::string_view name, uint64_t ns) = 0;
  void report_now(std::string_view name) { report(name, now_ns()); }

  // For TRITONSERVER_ServerInferAsync: the root trace, once; null when it could not be made. After
  // an accepted request it is the core's; otherwise give it to drop().
  virtual TRITONSERVER_InferenceTrace* begin() = 0;
  virtual void drop(TRITONSERVER_InferenceTrace* trace) = 0;
};

using RequestTracePtr = std::shared_ptr<RequestTrace>;

}  // namespace nereid::front
