// Prometheus page handler; see routes.h.
#include "front/metrics/routes.h"

#include "base/status.h"
#include "front/bridge/server_metrics.h"
#include "front/bridge/tensor.h"
#include "front/metrics/process_metrics.h"

namespace nereid::front {
void add_metrics_routes(Router& router, TRITONSERVER_Server* server,
                        std::function<std::string()> extra) {
  for (const char* path : {"/metrics", "/metrics/"}) {
    router.add("GET", path, [server, extra](const ExchangePtr& x) {
      StatusOr<std::string> text = server_metrics_text(server);
      if (!text.ok()) {
        x->send({http_status(text.status()),
                 "text/plain; charset=utf-8",
                 {},
                 std::string(message(text.status())) + "\n"});
        return;
      }
      x->send({200, "text/plain; charset=utf-8", {}, *text + process_metrics_text() + extra()});
    });
  }
}

}  // namespace nereid::front
