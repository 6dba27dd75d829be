// The load of the server as a response header, for balancers (ORCA).
#pragma once

#include <string>

#include "front/http/message.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

class LoadReport {
 public:
  LoadReport() = default;  // not requested
  // `request` asks by "endpoint-load-metrics-format: json" (or text).
  static bool is_asked(const Request& request);
  // The present load: the share of the KV cache in use, 0 to 1, and its capacity in tokens, over
  // all models that have one. Empty when not requested or unknown. Formats the metrics page, which
  // takes milliseconds with many models.
  LoadReport(TRITONSERVER_Server* server, const Request& request);

  // Adds "endpoint-load-metrics".
  void add_to(Response& head) const;

 private:
  std::string text_;
};

}  // namespace nereid::front
