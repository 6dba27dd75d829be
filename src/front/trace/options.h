// Options of request tracing from the command line.
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
  uint32_t max_queue_size = 2048;  // bsp_max_queue_size: finished spans beyond it are dropped
  // bsp_schedule_delay: longest wait of a finished span; 0: spans are sent at once.
  uint32_t schedule_delay_ms = 5000;
  uint32_t max_batch_size = 512;  // bsp_max_export_batch_size: spans in one POST
  // First delay before a retry to a collector that is unreachable or busy; it doubles each time.
  uint32_t retry_delay_ms = 1000;
  uint32_t max_retries = 5;
};

struct TraceOptions {
  uint32_t level = 0;  // bits of TRITONSERVER_InferenceTraceLevel; 0 = off
  // One request in `rate`; 0: only those whose client traces, in mode opentelemetry.
  uint32_t rate = 1000;
  int64_t count = -1;          // requests left to sample; -1 = no limit
  uint32_t log_frequency = 0;  // traces in one FILE.N; 0 = all in FILE
  std::string file;
  TraceMode mode = TraceMode::kTriton;
  OtlpOptions otlp;
};

// Parses values of --trace-config, in the order given, each "KEY=VALUE" with KEY level (repeatable:
// OFF, TIMESTAMPS, TENSORS), rate, count or mode, or "MODE,KEY=VALUE" with triton,file=,
// triton,log-frequency=, opentelemetry,url=, opentelemetry,resource=K=V, opentelemetry,bsp_*=.
// OTEL_* environment variables are the defaults of opentelemetry's keys. InvalidArgument names the
// entry and what is allowed, also for a level whose mode lacks a required key.
StatusOr<TraceOptions> parse_trace_config(const std::vector<std::string>& entries);

}  // namespace nereid::front
