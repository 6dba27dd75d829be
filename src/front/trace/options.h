// Options of request tracing, as the command line gives them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace nereid::front {

enum class TraceMode { kTriton, kOpenTelemetry };

// Export of spans as OTLP/HTTP JSON. The bsp_* members are the batch span processor's.
struct OtlpOptions {
  std::string url = "http://localhost:4318/v1/traces";
  std::string ca_file;  // PEM, trusted certificates for https; "": the system's
  // Resource attributes.
  std::map<std::string, std::string> resource = {{"service.name", "triton-inference-server"}};
  uint32_t max_queue_size = 2048;  // bsp_max_queue_size: more finished spans are dropped
  // bsp_schedule_delay: longest wait of a finished span; 0: what is there goes at once.
  uint32_t schedule_delay_ms = 5000;
  uint32_t max_batch_size = 512;  // bsp_max_export_batch_size: spans in one POST
  // A collector that cannot be reached or says that it is busy is asked again after this, then
  // after twice as long, and so on.
  uint32_t retry_delay_ms = 1000;
  uint32_t max_retries = 5;
};

struct TraceOptions {
  uint32_t level = 0;  // bits of TRITONSERVER_InferenceTraceLevel; 0 = off
  // One request in so many; 0: only those whose client traces, in mode opentelemetry.
  uint32_t rate = 1000;
  int64_t count = -1;          // requests left to sample; -1 = no limit
  uint32_t log_frequency = 0;  // traces in one FILE.N; 0 = all in FILE
  std::string file;
  TraceMode mode = TraceMode::kTriton;
  OtlpOptions otlp;
};

// The values of --trace-config, in the order given, each "KEY=VALUE" with KEY level (repeatable:
// OFF, TIMESTAMPS, TENSORS), rate, count or mode, or "MODE,KEY=VALUE" with triton,file=,
// triton,log-frequency=, opentelemetry,url=, opentelemetry,resource=K=V, opentelemetry,bsp_*=.
// OTEL_* environment variables give the defaults of opentelemetry's keys. InvalidArgument names the
// entry and what is allowed, as does a level without what its mode needs.
StatusOr<TraceOptions> parse_trace_config(const std::vector<std::string>& entries);

}  // namespace nereid::front
