// nv_inference_* families of a model version.
#include "server/statistics.h"

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"

namespace nereid::server {
namespace {

// Order in which ModelStatistics::create adds the series.
enum Index : size_t {
  kSuccess,
  kCount,
  kExecutions,
  kRequestUs,
  kQueueUs,
  kInputUs,
  kInferUs,
  kOutputUs,
  kPending,
  kLoadSeconds,
  kFailureFirst,  // in the order of FailureReason
};

constexpr const char* kReasons[] = {"REJECTED", "CANCELED", "BACKEND", "OTHER"};

double microseconds(uint64_t from_ns, uint64_t to_ns) {
  return to_ns > from_ns ? static_cast<double>((to_ns - from_ns) / 1000) : 0;
}

}  // namespace

StatusOr<std::unique_ptr<ModelStatistics>> ModelStatistics::create(
    bool metrics, const std::string& model, int64_t version,
    const std::map<std::string, std::string>& tags) {
  auto stats = std::make_unique<ModelStatistics>();
  if (!metrics) return stats;
  Labels labels = {{"model", model}, {"version", std::to_string(version)}};
  for (const auto& [key, value] : tags) labels["_" + key] = value;
  auto& s = *stats;
  const struct {
    const char *name, *help;
    TRITONSERVER_MetricKind kind = TRITONSERVER_METRIC_KIND_COUNTER;
  } rows[] = {
      {"nv_inference_request_success", "Number of successful inference requests, all batch sizes"},
      {"nv_inference_count", "Number of inferences performed (does not include cached requests)"},
      {"nv_inference_exec_count",
       "Number of model executions performed (does not include cached requests)"},
      {"nv_inference_request_duration_us",
       "Cumulative inference request duration in microseconds (includes cached requests)"},
      {"nv_inference_queue_duration_us",
       "Cumulative inference queuing duration in microseconds (includes cached requests)"},
      {"nv_inference_compute_input_duration_us",
       "Cumulative compute input duration in microseconds (does not include cached requests)"},
      {"nv_inference_compute_infer_duration_us",
       "Cumulative compute inference duration in microseconds (does not include cached requests)"},
      {"nv_inference_compute_output_duration_us",
       "Cumulative inference compute output duration in microseconds (does not include cached "
       "requests)"},
      {"nv_inference_pending_request_count",
       "Instantaneous number of pending requests awaiting execution per-model.",
       TRITONSERVER_METRIC_KIND_GAUGE},
      {"nv_model_load_duration_secs", "Model load time in seconds", TRITONSERVER_METRIC_KIND_GAUGE},
  };
  for (const auto& row : rows) RETURN_IF_ERROR(s.add(row.name, row.help, labels, row.kind));
  for (const char* reason : kReasons) {
    labels["reason"] = reason;
    RETURN_IF_ERROR(s.add("nv_inference_request_failure",
                          "Number of failed inference requests, all batch sizes", labels));
  }
  return stats;
}

Status ModelStatistics::add(const std::string& family, const std::string& help,
                            const Labels& labels, TRITONSERVER_MetricKind kind) {
  ASSIGN_OR_RETURN(auto f, MetricFamily::create(kind, family, help));
  ASSIGN_OR_RETURN(auto metric, Metric::create(*f, labels));
  families_.push_back(std::move(f));
  metrics_.push_back(std::move(metric));
  return ok();
}

void ModelStatistics::increment(size_t index, double value) {
  if (metrics_.empty()) return;
  if (Status s = metrics_[index]->increment(value); !s.ok()) log_warn("{}", message(s));
}

void ModelStatistics::success(uint64_t inferences, const RequestTimes& t) {
  increment(kSuccess, 1);
  increment(kCount, static_cast<double>(std::max<uint64_t>(1, inferences)));
  increment(kRequestUs, microseconds(t.start, now_ns()));
  increment(kQueueUs, microseconds(t.start, t.exec_start));
  increment(kInputUs, microseconds(t.exec_start, t.compute_start));
  increment(kInferUs, microseconds(t.compute_start, t.compute_end));
  increment(kOutputUs, microseconds(t.compute_end, t.exec_end));
}

void ModelStatistics::failure(FailureReason reason) {
  increment(kFailureFirst + static_cast<size_t>(reason), 1);
}

void ModelStatistics::execution() { increment(kExecutions, 1); }

void ModelStatistics::pending(double delta) { increment(kPending, delta); }

void ModelStatistics::loaded(double seconds) {
  if (metrics_.empty()) return;
  if (Status s = metrics_[kLoadSeconds]->set(seconds); !s.ok()) log_warn("{}", message(s));
}

}  // namespace nereid::server
