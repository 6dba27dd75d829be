// The trace of one sampled request, as front ends and InferenceCall report to it; front/trace
// writes or exports it.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

// Complete, and written or exported, when the last reference is gone and the core has released its
// traces: so a response keeps a reference until it is sent. Thread safe.
class RequestTrace {
 public:
  virtual ~RequestTrace() = default;

  // Reports an event of the front end: HTTP_RECV_START, GRPC_SEND_END, ...; steady-clock ns.
  virtual void report(std::string_view name, uint64_t ns) = 0;
  void report_now(std::string_view name) { report(name, now_ns()); }

  // The root trace for TRITONSERVER_ServerInferAsync, once; null when it could not be made. After
  // an accepted request the core owns it; otherwise pass it to drop().
  virtual TRITONSERVER_InferenceTrace* begin() = 0;
  virtual void drop(TRITONSERVER_InferenceTrace* trace) = 0;
};

using RequestTracePtr = std::shared_ptr<RequestTrace>;

}  // namespace nereid::front
