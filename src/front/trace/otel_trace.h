// A request trace in the form of OpenTelemetry spans.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "front/bridge/request_trace.h"
#include "front/trace/otlp_exporter.h"

namespace nereid::front {

// The parts of a traceparent header that a continued trace needs.
struct TraceParent {
  std::string trace_id, span_id;
};

// W3C Trace Context, level 1. nullopt for an invalid header, which is ignored.
std::optional<TraceParent> parse_traceparent(std::string_view header);

// Spans: InferRequest (from now until the end), below it one for each model with its "compute", and
// those that backends open and close with activities <NAME>_START and <NAME>_END. They are passed
// to `exporter` when the request is over.
RequestTracePtr make_otel_trace(std::shared_ptr<OtlpExporter> exporter, uint32_t level,
                                const std::optional<TraceParent>& parent,
                                std::string_view trace_state);

}  // namespace nereid::front
