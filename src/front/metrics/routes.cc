// Prometheus page handler; see routes.h.
#include "front/metrics/routes.h"

#include "base/status.h"
#include "front/bridge/tensor.h"
#include "front/metrics/process_metrics.h"

namespace nereid::front {
namespace {

StatusOr<std::string> server_metrics_text(TRITONSERVER_Server* server) {
  TRITONSERVER_Metrics* metrics = nullptr;
  RETURN_IF_ERROR(take_error(TRITONSERVER_ServerMetrics(server, &metrics)));
  const char* base = nullptr;
  size_t size = 0;
  const Status status = take_error(
      TRITONSERVER_MetricsFormatted(metrics, TRITONSERVER_METRIC_PROMETHEUS, &base, &size));
  std::string text;
  if (status.ok()) text.assign(base, size);
  take_error(TRITONSERVER_MetricsDelete(metrics)).IgnoreError();
  if (!status.ok()) return status;
  return text;
}

}  // namespace

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
