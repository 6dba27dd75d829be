// Traces of HTTP requests.
#pragma once

#include <string>

#include "front/http/message.h"
#include "front/trace/tracer.h"

namespace nereid::front {

// A trace when the request is sampled, with its arrival times; the answer adds its own.
inline RequestTracePtr trace_exchange(Tracer& tracer, const std::string& model,
                                      Exchange& exchange) {
  if (!tracer.is_on()) return nullptr;
  const Request& request = exchange.request();
  const std::string* parent = find_header(request.headers, "traceparent");
  const std::string* state = find_header(request.headers, "tracestate");
  RequestTracePtr trace =
      tracer.sample(model, parent == nullptr ? "" : *parent, state == nullptr ? "" : *state);
  if (trace == nullptr) return nullptr;
  trace->report("HTTP_RECV_START", request.begin_ns);
  trace->report("HTTP_RECV_END", request.end_ns);
  exchange.on_written([trace](uint64_t begin_ns, uint64_t end_ns) {
    trace->report("HTTP_SEND_START", begin_ns);
    trace->report("HTTP_SEND_END", end_ns);
  });
  return trace;
}

}  // namespace nereid::front
