// Request tracing of all front ends of one server: sampling, and the settings that
// clients read and change.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "front/bridge/request_trace.h"
#include "front/trace/options.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

// Thread safe. Each front end holds a reference.
class Tracer {
 public:
  // Setting to values, in the order of the protocol's response.
  using Settings = std::vector<std::pair<std::string, std::vector<std::string>>>;
  // Setting to new values; none = the value of the level above (model: global; global: start-up).
  // Absent settings stay, unknown ones are ignored.
  using Changes = std::map<std::string, std::vector<std::string>>;

  // InvalidArgument: the URL is unusable. `server` must outlive the result.
  static StatusOr<std::shared_ptr<Tracer>> create(TRITONSERVER_Server* server,
                                                  TraceOptions options);
  ~Tracer();  // writes and exports finished traces
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // A trace when the request to `model` is sampled, else null. `traceparent` and `tracestate` are
  // the values of the W3C headers ("" when absent): in mode opentelemetry a valid one continues the
  // client's trace and is always sampled.
  RequestTracePtr sample(const std::string& model, std::string_view traceparent,
                         std::string_view tracestate);
  // False: sample() always returns null, so headers need not be read.
  bool is_on() const;

  // Changes and returns the settings of `model`, or with "" the global ones. InvalidArgument:
  // unknown model or invalid value; Unimplemented: the trace file.
  StatusOr<Settings> update(const std::string& model, const Changes& changes);

 private:
  struct Impl;
  explicit Tracer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nereid::front
