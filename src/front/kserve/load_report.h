// The load of the server as a header of an answer, for balancers that ask for it (ORCA).
#pragma once

#include <string>

#include "front/http/message.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

class LoadReport {
 public:
  LoadReport() = default;  // not asked for
  // `request` asks by "endpoint-load-metrics-format: json" (or text).
  static bool is_asked(const Request& request);
  // The load now: the share of the KV cache in use, 0 to 1, and the tokens that the cache holds,
  // over all models that have one. Empty when not asked for or when none is known. Reads the page
  // of metrics, which takes milliseconds with many models.
  LoadReport(TRITONSERVER_Server* server, const Request& request);

  // Adds "endpoint-load-metrics".
  void add_to(Response& head) const;

 private:
  std::string text_;
};

}  // namespace nereid::front
