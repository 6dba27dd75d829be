// The load of the server as a header of an answer, for balancers that ask for it (ORCA).
#pragma once

#include <string>

#include "front/http/message.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

class LoadReport {
 public:
  // `request` asks by "endpoint-load-metrics-format: json" (or text). `server` must outlive this.
  LoadReport(TRITONSERVER_Server* server, const Request& request);

  // Adds "endpoint-load-metrics": the share of the KV cache in use, 0 to 1, and the tokens that the
  // cache holds, over all models that have one. Nothing when not asked for or when none is known.
  void add_to(Response& head) const;

 private:
  TRITONSERVER_Server* server_;
  std::string format_;  // "": not asked for
};

}  // namespace nereid::front
