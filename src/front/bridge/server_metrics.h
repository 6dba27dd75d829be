// The core's metrics page.
#pragma once

#include <string>

#include "base/status.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

// Prometheus text of all metrics; the core's error when metrics are off.
StatusOr<std::string> server_metrics_text(TRITONSERVER_Server* server);

}  // namespace nereid::front
