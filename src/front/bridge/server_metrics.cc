#include "front/bridge/server_metrics.h"

#include "front/bridge/tensor.h"

namespace nereid::front {

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

}  // namespace nereid::front
