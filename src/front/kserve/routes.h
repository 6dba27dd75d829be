// KServe v2 routes: health, metadata, configuration, statistics, infer, generate, repository,
// shared memory, logging and trace settings.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "front/http/header_filter.h"
#include "front/http/router.h"
#include "front/http/workers.h"
#include "front/protection/byte_budget.h"
#include "front/trace/tracer.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

class Extensions;

struct KserveOptions {
  size_t max_body_bytes = size_t{64} << 20;  // after decompression
  HeaderFilter forwards_header;              // infer: headers forwarded as parameters
  std::shared_ptr<Extensions> extensions;    // null: own
  std::shared_ptr<Tracer> tracer;            // not null
  Workers* workers = nullptr;                // not null
  std::shared_ptr<ByteBudget> budget;        // for parsed bodies; null: not counted
  bool allow_protocol = true;                // /v2 and all below
  bool allow_shared_memory = true;           // clients may register regions of shared memory
  bool infers_decoupled = false;             // infer accepts decoupled models that answer once
};

using KserveOptionsPtr = std::shared_ptr<const KserveOptions>;

// `draining` turns readiness and liveness into 503 "Server exiting". `server` must
// outlive the router.
void add_kserve_routes(Router& router, TRITONSERVER_Server* server, std::function<bool()> draining,
                       KserveOptions options);

// The text, or the error.
Response kserve_response(StatusOr<std::string> json);
// No text, or the error.
Response kserve_response(const Status& status);
// {"error": "..."} with the status that belongs to the error's code (503 has Retry-After).
Response kserve_error(const Status& status);
Response kserve_error(int status, std::string_view message);

}  // namespace nereid::front
