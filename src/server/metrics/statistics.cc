// The nv_inference_* families of a model version.
#include "server/metrics/statistics.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace nereid::server {
namespace {

uint64_t between(uint64_t from_ns, uint64_t to_ns) { return to_ns > from_ns ? to_ns - from_ns : 0; }

}  // namespace

ModelStatistics::ModelStatistics(const MetricsConfig& metrics, const ModelConfig& model,
                                 int64_t version, bool is_cached) {
  if (!metrics.enabled) return;
  ModelMetrics::Spec spec;
  spec.labels = {{"model", model.name}, {"version", std::to_string(version)}};
  if (!model.space.empty()) spec.labels["namespace"] = model.space;
  for (const auto& [key, value] : model.metric_tags) spec.labels["_" + key] = value;
  spec.is_cached = is_cached;
  spec.is_decoupled = model.decoupled;
  spec.first_response_buckets = model.first_response_buckets;
  metrics_ = ModelMetrics::get(spec, metrics);
}

void ModelStatistics::count(ModelMetrics::Counter counter, uint64_t n) {
  if (metrics_ != nullptr) metrics_->add(counter, n);
}

void ModelStatistics::observe(ModelMetrics::Summary summary, uint64_t ns) {
  if (metrics_ == nullptr || !metrics_->has_summaries()) return;
  metrics_->observe(summary, static_cast<double>(ns / 1000));
}

void StageSums::add(const RequestTimes& t) {
  queue_ += between(t.start, t.exec_start);
  input_ += between(t.exec_start, t.compute_start);
  infer_ += between(t.compute_start, t.compute_end);
  output_ += between(t.compute_end, t.exec_end);
}

RequestTimes StageSums::as_times(uint64_t start) const {
  RequestTimes t;
  t.start = start;
  t.exec_start = t.start + queue_;
  t.compute_start = t.exec_start + input_;
  t.compute_end = t.compute_start + infer_;
  t.exec_end = t.compute_end + output_;
  return t;
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
  const uint64_t request = between(t.start, end), queue = between(t.start, t.exec_start),
                 input = between(t.exec_start, t.compute_start),
                 infer = between(t.compute_start, t.compute_end),
                 output = between(t.compute_end, t.exec_end);
  count(ModelMetrics::kSuccess, 1);
  count(ModelMetrics::kInferences, inferences);
  count(ModelMetrics::kRequestUs, request / 1000);
  count(ModelMetrics::kQueueUs, queue / 1000);
  count(ModelMetrics::kInputUs, input / 1000);
  count(ModelMetrics::kInferUs, infer / 1000);
  count(ModelMetrics::kOutputUs, output / 1000);
  observe(ModelMetrics::kRequestSummary, request);
  observe(ModelMetrics::kQueueSummary, queue);
  observe(ModelMetrics::kInputSummary, input);
  observe(ModelMetrics::kInferSummary, infer);
  observe(ModelMetrics::kOutputSummary, output);
}

void ModelStatistics::cache_hit(uint64_t start_ns, uint64_t queue_ns, uint64_t lookup_ns) {
  const uint64_t end = now_ns();
  {
    std::lock_guard lock(mutex_);
    success_.add(start_ns, end);
    queue_.add(0, queue_ns);
    hit_.add(0, lookup_ns);
  }
  count(ModelMetrics::kSuccess, 1);
  count(ModelMetrics::kRequestUs, between(start_ns, end) / 1000);
  count(ModelMetrics::kQueueUs, queue_ns / 1000);
  count(ModelMetrics::kCacheHits, 1);
  count(ModelMetrics::kCacheHitUs, lookup_ns / 1000);
  observe(ModelMetrics::kQueueSummary, queue_ns);
  observe(ModelMetrics::kHitSummary, lookup_ns);
}

void ModelStatistics::cache_miss(uint64_t ns) {
  {
    std::lock_guard lock(mutex_);
    miss_.add(0, ns);
  }
  count(ModelMetrics::kCacheMisses, 1);
  count(ModelMetrics::kCacheMissUs, ns / 1000);
  observe(ModelMetrics::kMissSummary, ns);
}

void ModelStatistics::first_response(uint64_t start_ns) {
  metrics_->first_response(static_cast<double>(between(start_ns, now_ns())) * 1e-6);
}

void ModelStatistics::failure(FailureReason reason, uint64_t start_ns) {
  {
    std::lock_guard lock(mutex_);
    fail_.add(start_ns, now_ns());
  }
  count(static_cast<ModelMetrics::Counter>(ModelMetrics::kRejected + static_cast<size_t>(reason)),
        1);
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
  count(ModelMetrics::kExecutions, 1);
}

void ModelStatistics::response(uint64_t index, const ResponseTimes& t) {
  std::lock_guard lock(mutex_);
  Responses& r = responses_[index];
  if (t.kind == ResponseTimes::Kind::kCancel) return r.cancel.add(t.start, t.end);
  const bool has_output = t.output_start != 0;
  if (t.kind == ResponseTimes::Kind::kFail) {
    r.fail.add(t.start, t.end);
  } else {
    (has_output ? r.success : r.empty).add(t.start, t.end);
  }
  r.infer.add(t.start, has_output ? t.output_start : t.end);
  if (has_output) r.output.add(t.output_start, t.end);
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

void ModelStatistics::pending(int64_t delta) {
  if (metrics_ != nullptr) metrics_->pending(delta);
}

void ModelStatistics::loaded(double seconds) {
  if (metrics_ != nullptr) metrics_->loaded(seconds);
}

}  // namespace nereid::server
