// The Prometheus page's handler; see routes.h.
#include "front/metrics/routes.h"

#include "base/status.h"
#include "front/bridge/server_metrics.h"
#include "front/bridge/tensor.h"
#include "front/metrics/process_metrics.h"

namespace nereid::front {
namespace {

Response metrics_page(TRITONSERVER_Server* server, const std::function<std::string()>& extra) {
  StatusOr<std::string> text = server_metrics_text(server);
  if (text.ok()) {
    return {200, "text/plain; charset=utf-8", {}, *text + process_metrics_text() + extra()};
  }
  return {http_status(text.status()),
          "text/plain; charset=utf-8",
          {},
          std::string(message(text.status())) + "\n"};
}

}  // namespace

void add_metrics_routes(Router& router, TRITONSERVER_Server* server, Workers& workers,
                        std::function<std::string()> extra) {
  for (const char* path : {"/metrics", "/metrics/"}) {
    router.add("GET", path,
               {Api::kStatistics, Access::kCallers, Cost::kNothing, ErrorShape::kKserve},
               [server, &workers, extra](const ExchangePtr& x) {
                 workers.run(
                     x, false, [server, extra] { return metrics_page(server, extra); },
                     [x](Response page) { x->send(std::move(page)); });
               });
  }
}

}  // namespace nereid::front
