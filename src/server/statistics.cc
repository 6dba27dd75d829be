// nv_inference_* families of a model version.
#include "server/statistics.h"

#include <algorithm>
#include <chrono>

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
  const uint64_t end = now_ns();
  inferences = std::max<uint64_t>(1, inferences);
  {
    std::lock_guard lock(mutex_);
    inferences_ += inferences;
    success_.add(t.start, end);
    queue_.add(t.start, t.exec_start);
    input_.add(t.exec_start, t.compute_start);
    infer_.add(t.compute_start, t.compute_end);
    output_.add(t.compute_end, t.exec_end);
  }
  increment(kSuccess, 1);
  increment(kCount, static_cast<double>(inferences));
  increment(kRequestUs, microseconds(t.start, end));
  increment(kQueueUs, microseconds(t.start, t.exec_start));
  increment(kInputUs, microseconds(t.exec_start, t.compute_start));
  increment(kInferUs, microseconds(t.compute_start, t.compute_end));
  increment(kOutputUs, microseconds(t.compute_end, t.exec_end));
}

void ModelStatistics::cache_hit(uint64_t start_ns, uint64_t queue_ns, uint64_t lookup_ns) {
  const uint64_t end = now_ns();
  {
    std::lock_guard lock(mutex_);
    success_.add(start_ns, end);
    queue_.add(0, queue_ns);
    hit_.add(0, lookup_ns);
  }
  increment(kSuccess, 1);
  increment(kRequestUs, microseconds(start_ns, end));
  increment(kQueueUs, microseconds(0, queue_ns));
}

void ModelStatistics::cache_miss(uint64_t ns) {
  std::lock_guard lock(mutex_);
  miss_.add(0, ns);
}

void ModelStatistics::failure(FailureReason reason, uint64_t start_ns) {
  {
    std::lock_guard lock(mutex_);
    fail_.add(start_ns, now_ns());
  }
  increment(kFailureFirst + static_cast<size_t>(reason), 1);
}

void ModelStatistics::execution(uint64_t batch_size, const RequestTimes& t) {
  {
    std::lock_guard lock(mutex_);
    ++executions_;
    last_inference_ms_ =
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                  std::chrono::system_clock::now().time_since_epoch())
                                  .count());
    Batch& batch = batches_[batch_size];
    batch.input.add(t.exec_start, t.compute_start);
    batch.infer.add(t.compute_start, t.compute_end);
    batch.output.add(t.compute_end, t.exec_end);
  }
  increment(kExecutions, 1);
}

void ModelStatistics::response(uint64_t index, const ResponseTimes& t) {
  std::lock_guard lock(mutex_);
  Responses& r = responses_[index];
  if (t.kind == ResponseTimes::Kind::kCancel) return r.cancel.add(t.start, t.end);
  if (t.kind == ResponseTimes::Kind::kFail) {
    r.fail.add(t.start, t.end);
  } else if (t.output_start == 0) {
    return r.empty.add(t.start, t.end);
  } else {
    r.success.add(t.start, t.end);
  }
  if (t.output_start == 0) return;
  r.infer.add(t.start, t.output_start);
  r.output.add(t.output_start, t.end);
}

void ModelStatistics::append_json(json::object& out) const {
  std::lock_guard lock(mutex_);
  out["last_inference"] = last_inference_ms_;
  out["inference_count"] = inferences_;
  out["execution_count"] = executions_;
  out["inference_stats"] =
      json::object{{"success", success_.to_json()},     {"fail", fail_.to_json()},
                   {"queue", queue_.to_json()},         {"compute_input", input_.to_json()},
                   {"compute_infer", infer_.to_json()}, {"compute_output", output_.to_json()},
                   {"cache_hit", hit_.to_json()},       {"cache_miss", miss_.to_json()}};
  json::object responses;
  for (const auto& [index, r] : responses_) {
    responses[std::to_string(index)] =
        json::object{{"compute_infer", r.infer.to_json()},  {"compute_output", r.output.to_json()},
                     {"success", r.success.to_json()},      {"fail", r.fail.to_json()},
                     {"empty_response", r.empty.to_json()}, {"cancel", r.cancel.to_json()}};
  }
  out["response_stats"] = std::move(responses);
  json::array batches;
  for (const auto& [size, b] : batches_) {
    batches.push_back(json::object{{"batch_size", size},
                                   {"compute_input", b.input.to_json()},
                                   {"compute_infer", b.infer.to_json()},
                                   {"compute_output", b.output.to_json()}});
  }
  out["batch_stats"] = std::move(batches);
  json::array memory;
  for (const auto& [owner, uses] : memory_) {
    for (const auto& use : uses) {
      memory.push_back(
          json::object{{"type", use.type}, {"id", use.id}, {"byte_size", use.byte_size}});
    }
  }
  out["memory_usage"] = std::move(memory);
}

void ModelStatistics::set_memory(const void* owner, std::vector<MemoryUse> uses) {
  std::lock_guard lock(mutex_);
  memory_[owner] = std::move(uses);
}

void ModelStatistics::pending(double delta) { increment(kPending, delta); }

void ModelStatistics::loaded(double seconds) {
  if (metrics_.empty()) return;
  if (Status s = metrics_[kLoadSeconds]->set(seconds); !s.ok()) log_warn("{}", message(s));
}

}  // namespace nereid::server
