// Prometheus text for the process itself and for its ports.
#pragma once

#include <string>

#include "front/grpc/call.h"
#include "front/http/listener.h"
#include "front/protection/byte_budget.h"

namespace nereid::front {

// process_resident_memory_bytes and others, under the names that Prometheus clients use.
std::string process_metrics_text();

// nereid_http_*: connections, running requests, responses by status class, disconnects.
std::string http_metrics_text(const ListenerStats& stats);

// nereid_client_bytes and nereid_io_stall_seconds, for all ports together.
std::string front_metrics_text(const ByteBudget& budget);

// nereid_grpc_*: connections, running rpcs, cancelled rpcs, bytes of incomplete requests.
std::string grpc_metrics_text(const GrpcStats& stats);

}  // namespace nereid::front
